#include "src/cli/metrics_server.h"

#include <httplib.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <semaphore>
#include <thread>
#include <utility>

#include "src/report/pages.h"
#include "vdnn/error.h"

namespace vdnn {

namespace {

constexpr std::size_t kWorkers = 4;
constexpr std::ptrdiff_t kMostConnections = 20;  // accepted, whether answered or waiting
constexpr std::chrono::seconds kClientTimeout{1};
constexpr std::chrono::seconds kEndTimeout{2};

// Restores the handling of SIGPIPE. The library's constructor ignores that signal for the whole process,
// whose output may be a pipe that closes.
class KeptPipeSignal {
 public:
  KeptPipeSignal() { sigaction(SIGPIPE, nullptr, &action_); }
  ~KeptPipeSignal() { sigaction(SIGPIPE, &action_, nullptr); }
  KeptPipeSignal(const KeptPipeSignal&) = delete;
  KeptPipeSignal& operator=(const KeptPipeSignal&) = delete;

 private:
  struct sigaction action_ {};
};

// Threads started while an object of this class exists receive no signals. In them, a write to a closed
// connection returns an error.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all{};
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_{};
};

// Limits connections. The library would accept any number, and idle ones would use up the training's file
// descriptors. With this queue the accepting thread waits at the limit, and the kernel limits further
// connections.
class LimitedQueue : public httplib::TaskQueue {
  // void; in later versions of the library a bool that reports whether the task was queued.
  using Enqueued = decltype(std::declval<httplib::TaskQueue&>().enqueue({}));

 public:
  Enqueued enqueue(std::function<void()> connection) override {
    places_.acquire();
    workers_.enqueue([this, connection = std::move(connection)] {
      connection();
      places_.release();
    });
    return static_cast<Enqueued>(true);
  }
  void shutdown() override { workers_.shutdown(); }

 private:
  std::counting_semaphore<kMostConnections> places_{kMostConnections};
  httplib::ThreadPool workers_{kWorkers};
};

std::unique_ptr<httplib::Server> make_server() {
  const KeptPipeSignal kept;
  return std::make_unique<httplib::Server>();
}

// The library would set SO_REUSEPORT, which shares the port with any other program. With SO_REUSEADDR
// instead, the server gets a port whose last connections are still closing, but no port at which another
// program listens.
void set_socket_options(int socket) {
  const int yes = 1;
  setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
}

// Why the server cannot listen, by errno; 0: the address is invalid.
std::string reason(int error) {
  switch (error) {
    case EADDRINUSE:
      return "another program listens there; --metrics-port 0 chooses a free port";
    case EACCES:
    case EADDRNOTAVAIL:
      return std::strerror(error);
    default:
      return "not an address of this machine; 127.0.0.1 and 0.0.0.0 always are";
  }
}

std::string in_url(const std::string& address) {
  return address.find(':') == std::string::npos ? address : "[" + address + "]";
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1" || address == "localhost";
}

// "[::1]:9100" has the host "[::1]".
std::string without_port(const std::string& host) {
  const std::size_t colon = host.rfind(':');
  return colon == std::string::npos || host.ends_with(']') ? host : host.substr(0, colon);
}

// Whether this Host may occur in a request to the loopback address `address`. Any port is allowed, since
// connections may be forwarded.
bool names_this_machine(const std::string& host_and_port, const std::string& address) {
  const std::string host = without_port(host_and_port);
  return host == "localhost" || host == "127.0.0.1" || host == "[::1]" || host == in_url(address);
}

void answer_text(httplib::Response& response, int status, const std::string& text) {
  response.status = status;
  response.set_content(text + "\n", "text/plain; charset=utf-8");
}

}  // namespace

class MetricsServer::Listener {
 public:
  Listener(std::string address, std::shared_ptr<const LiveMetrics> metrics,
           std::function<void(const std::string&)> warn)
      : address_(std::move(address)),
        metrics_(std::move(metrics)),
        warn_(std::move(warn)),
        server_(make_server()) {
    server_->set_socket_options(set_socket_options);
    server_->set_keep_alive_max_count(1);  // otherwise an idle connection occupies a worker
    server_->set_keep_alive_timeout(kClientTimeout.count());
    server_->set_read_timeout(kClientTimeout);
    server_->set_write_timeout(kClientTimeout);
    server_->new_task_queue = [] {
      return std::make_unique<LimitedQueue>().release();  // the library deletes it
    };
    server_->set_default_headers({{"Cache-Control", "no-store"}, {"X-Content-Type-Options", "nosniff"}});
    answer();
  }

  // Returns the bound port. Throws InvalidArgument if it cannot be bound.
  std::uint16_t bind(std::uint16_t port) {
    errno = 0;
    const int bound = port == 0                               ? server_->bind_to_any_port(address_)
                      : server_->bind_to_port(address_, port) ? port
                                                              : -1;
    if (bound <= 0) {
      throw InvalidArgument("--metrics-port " + std::to_string(port) + " on " + address_ + ": " +
                            reason(errno));
    }
    return static_cast<std::uint16_t>(bound);
  }

  // Runs on a thread of its own until stop().
  void listen() {
    server_->listen_after_bind();
    if (!stopped_) {
      warn_(
          "--metrics-port: the server has ended, since it could not accept a connection; the training goes "
          "on");
    }
    const std::scoped_lock lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }

  // stop() would do nothing before this returns.
  void wait_until_listening() {
    while (!server_->is_running() && !ended_within(std::chrono::milliseconds(1))) {
    }
  }

  void stop() {
    stopped_ = true;
    server_->stop();
  }

  template <class Duration>
  bool ended_within(Duration duration) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, duration, [this] { return ended_; });
  }

 private:
  void answer() {
    server_->set_pre_routing_handler(
        [address = address_](const httplib::Request& request, httplib::Response& response) {
          if (is_loopback(address) && !names_this_machine(request.get_header_value("Host"), address)) {
            answer_text(response, 403, "the request's Host does not name this machine");
            return httplib::Server::HandlerResponse::Handled;
          }
          if (request.method != "GET" && request.method != "HEAD") {
            response.set_header("Allow", "GET, HEAD");
            answer_text(response, 405, "only GET and HEAD are answered");
            return httplib::Server::HandlerResponse::Handled;
          }
          return httplib::Server::HandlerResponse::Unhandled;
        });
    server_->Get("/", [](const httplib::Request&, httplib::Response& response) {
      response.set_header(
          "Content-Security-Policy",
          "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
          "connect-src 'self'");
      response.set_content(std::string(live_page()), "text/html; charset=utf-8");
    });
    server_->Get("/metrics", [metrics = metrics_](const httplib::Request&, httplib::Response& response) {
      response.set_content(to_prometheus(metrics->latest()), "text/plain; version=0.0.4; charset=utf-8");
    });
    server_->Get("/metrics.json", [metrics = metrics_](const httplib::Request&, httplib::Response& response) {
      response.set_content(metrics->to_json().dump(), "application/json");
    });
    server_->set_error_handler([](const httplib::Request&, httplib::Response& response) {
      if (response.status == 404) {
        answer_text(response, 404, "not found; try /, /metrics or /metrics.json");
      }
    });
  }

  std::string address_;
  std::shared_ptr<const LiveMetrics> metrics_;
  std::function<void(const std::string&)> warn_;
  std::unique_ptr<httplib::Server> server_;
  std::atomic<bool> stopped_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
};

MetricsServer::MetricsServer(const std::string& address, std::uint16_t port,
                             const std::shared_ptr<const LiveMetrics>& metrics,
                             const std::function<void(const std::string&)>& warn)
    : address_(address), listener_(std::make_shared<Listener>(address, metrics, warn)) {
  port_ = listener_->bind(port);
  {
    const BlockedSignals blocked;
    std::thread([listener = listener_] { listener->listen(); }).detach();
  }
  listener_->wait_until_listening();
}

MetricsServer::~MetricsServer() {
  listener_->stop();
  listener_->ended_within(kEndTimeout);
}

std::uint16_t MetricsServer::port() const {
  return port_;
}

std::string MetricsServer::url() const {
  return "http://" + in_url(address_) + ":" + std::to_string(port_) + "/";
}

}  // namespace vdnn
