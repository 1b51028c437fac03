// The server of a training run's metrics, tested without training.

#include "src/cli/metrics_server.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/cli/http_request.h"
#include "vdnn/error.h"

namespace vdnn {
namespace {

using ::testing::AllOf;
using testing::body_of;
using ::testing::HasSubstr;
using testing::request;
using ::testing::StartsWith;
using testing::status_line;

void unexpected(const std::string& warning) {
  ADD_FAILURE() << warning;
}

class MetricsServerTest : public ::testing::Test {
 protected:
  std::shared_ptr<LiveMetrics> live_ = std::make_shared<LiveMetrics>();
  MetricsServer server_{"127.0.0.1", 0, live_, unexpected};
};

TEST_F(MetricsServerTest, AnswersWithTheLatestSnapshot) {
  for (const std::uint64_t step : {3, 4}) {
    live_->publish({.model = "lenet", .step = step, .loss = 0.5});
    const std::string answer = request(server_.port(), "GET", "/metrics");
    EXPECT_EQ(status_line(answer), "HTTP/1.1 200 OK");
    EXPECT_THAT(answer, HasSubstr("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    EXPECT_EQ(body_of(answer), to_prometheus(live_->latest()));
    EXPECT_THAT(body_of(answer), HasSubstr("\nvdnn_step " + std::to_string(step) + "\n"));
    const auto json = nlohmann::json::parse(body_of(request(server_.port(), "GET", "/metrics.json")));
    EXPECT_EQ(json["step"], step);
    EXPECT_EQ(json["history"].size(), step - 2);
  }
}

TEST_F(MetricsServerTest, HasAPageThatMayLoadNothingElse) {
  const std::string answer = request(server_.port(), "GET", "/");
  EXPECT_EQ(status_line(answer), "HTTP/1.1 200 OK");
  EXPECT_THAT(answer, AllOf(HasSubstr("Content-Type: text/html"), HasSubstr("default-src 'none'")));
  const std::string page = body_of(answer);
  EXPECT_THAT(page, AllOf(StartsWith("<!DOCTYPE html>"), ::testing::EndsWith("</html>\n")));
  EXPECT_THAT(page, ::testing::Not(HasSubstr("src=")));
}

TEST_F(MetricsServerTest, OnlyReads) {
  for (const std::string method : {"POST", "PUT", "DELETE", "PATCH", "OPTIONS"}) {
    for (const std::string path : {"/", "/metrics", "/nowhere"}) {
      const std::string answer = request(server_.port(), method, path, "step=7");
      EXPECT_EQ(status_line(answer), "HTTP/1.1 405 Method Not Allowed") << method << path;
      EXPECT_THAT(answer, HasSubstr("Allow: GET, HEAD\r\n"));
    }
  }
  EXPECT_THAT(status_line(request(server_.port(), "GET", "/nowhere")), HasSubstr(" 404 "));
}

TEST_F(MetricsServerTest, RefusesMethodsThatHttpDoesNotHave) {
  for (const std::string method : {"FOO", "PROPFIND", "get"}) {
    EXPECT_EQ(status_line(request(server_.port(), method, "/metrics")), "HTTP/1.1 400 Bad Request") << method;
  }
}

std::string status_with_host(const MetricsServer& server, const std::string& host) {
  return status_line(testing::send_raw(
      server.port(), "GET /metrics HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n"));
}

// If any name were accepted, a foreign page whose name resolves to 127.0.0.1 could read the metrics in a
// browser.
TEST_F(MetricsServerTest, AnswersOnALoopbackAddressOnlyToItsNames) {
  for (const std::string host :
       {"127.0.0.1", "127.0.0.1:80", "localhost", "localhost:9100", "[::1]", "[::1]:9100"}) {
    EXPECT_EQ(status_with_host(server_, host), "HTTP/1.1 200 OK") << host;
  }
  for (const std::string host :
       {"example.org", "example.org:80", "127.0.0.1.example.org", "127.0.0.2", "::1", ""}) {
    EXPECT_EQ(status_with_host(server_, host), "HTTP/1.1 403 Forbidden") << host;
  }
  EXPECT_THAT(status_line(testing::send_raw(server_.port(), "GET / HTTP/1.0\r\n\r\n")), HasSubstr(" 403 "));
}

TEST_F(MetricsServerTest, AnswersElsewhereToEveryName) {
  const MetricsServer open("0.0.0.0", 0, live_, unexpected);
  EXPECT_EQ(status_with_host(open, "gpu-7.example.org"), "HTTP/1.1 200 OK");
}

// The socket that listens at `port`; -1 if there is none.
int listening_socket(std::uint16_t port) {
  for (int descriptor = 0; descriptor < 1024; ++descriptor) {
    sockaddr_in address{};
    socklen_t size = sizeof(address);
    int listens = 0;
    socklen_t size_of_int = sizeof(listens);
    if (::getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size_of_int) == 0 && listens != 0 &&
        ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size) == 0 &&
        ntohs(address.sin_port) == port) {
      return descriptor;
    }
  }
  return -1;
}

// Regression: the server ended silently, and users waited for metrics.
TEST_F(MetricsServerTest, WarnsWhereItEndsByItself) {
  std::promise<std::string> warning;
  const MetricsServer server("127.0.0.1", 0, live_,
                             [&](const std::string& text) { warning.set_value(text); });
  ASSERT_EQ(::shutdown(listening_socket(server.port()), SHUT_RDWR), 0);  // makes accept() fail from now on
  EXPECT_THAT(warning.get_future().get(), HasSubstr("the training goes on"));
}

TEST_F(MetricsServerTest, AnswersHeadWithoutTheBody) {
  const std::string answer = request(server_.port(), "HEAD", "/metrics");
  EXPECT_EQ(status_line(answer), "HTTP/1.1 200 OK");
  EXPECT_EQ(body_of(answer), "");
  EXPECT_THAT(answer,
              HasSubstr("Content-Length: " + std::to_string(to_prometheus(live_->latest()).size()) + "\r\n"));
}

TEST_F(MetricsServerTest, RefusesWhatIsNoRequest) {
  EXPECT_THAT(status_line(testing::send_raw(server_.port(), "what is this\r\n\r\n")), HasSubstr(" 400 "));
  EXPECT_THAT(status_line(request(server_.port(), "GET", "/metrics")), HasSubstr(" 200 "));
}

TEST_F(MetricsServerTest, AnswersSeveralClientsWhileStepsArePublished) {
  std::vector<std::jthread> clients;
  clients.reserve(4);
  for (int client = 0; client < 4; ++client) {
    clients.emplace_back([this] {
      for (int i = 0; i < 20; ++i) {
        const std::string json = body_of(request(server_.port(), "GET", "/metrics.json"));
        EXPECT_TRUE(nlohmann::json::accept(json)) << json;
      }
    });
  }
  for (std::uint64_t step = 1; step <= 5000; ++step) {
    live_->publish({.step = step, .loss = 1.0});
  }
}

// Lowers the process's limit of open files, and restores it at the end.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(rlim_t limit) {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit lower{.rlim_cur = limit, .rlim_max = before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &lower), 0);
  }
  ~DescriptorLimit() { EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before_), 0); }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;

 private:
  rlimit before_{};
};

// Regression: the server accepted all connections at once, and a training run with 1024 descriptors could not
// write its checkpoint.
TEST_F(MetricsServerTest, LeavesDescriptorsToTheTrainingWhereManyConnectionsAreIdle) {
  constexpr int kConnections = 300;
  constexpr int kFree = 40;
  std::vector<int> clients(kConnections);
  for (int& client : clients) {
    client = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    ASSERT_GE(client, 0);
  }
  const DescriptorLimit limit(static_cast<rlim_t>(clients.back() + 1 + kFree));
  const sockaddr_in address = testing::loopback(server_.port());
  int refused = 0;
  for (const int client : clients) {
    // The socket does not block, so connect() has not succeeded yet.
    EXPECT_EQ(::connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), -1);
    pollfd connected{.fd = client, .events = POLLOUT, .revents = 0};
    ::poll(&connected, 1, 1);  // gives the server a chance to accept it
    const int file = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    refused += file < 0 ? 1 : 0;
    ::close(file);
  }
  EXPECT_EQ(refused, 0);
  std::ranges::for_each(clients, ::close);
  EXPECT_THAT(status_line(request(server_.port(), "GET", "/metrics")), HasSubstr(" 200 "));
}

// By default, the library would share the port, so each server would get some of the requests.
TEST_F(MetricsServerTest, RefusesAPortThatIsTaken) {
  try {
    const MetricsServer second("127.0.0.1", server_.port(), live_, unexpected);
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("--metrics-port " + std::to_string(server_.port())),
                                    HasSubstr("another program listens there")));
  }
}

TEST_F(MetricsServerTest, RefusesAnAddressThatIsNotThisMachines) {
  for (const std::string address : {"192.0.2.1", "not an address"}) {
    try {
      const MetricsServer second(address, 0, live_, unexpected);
      FAIL() << address;
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("--metrics-port 0 on " + address + ": "));
    }
  }
}

TEST_F(MetricsServerTest, NamesAddressesThatCanBeUsedWhereAnotherIsNone) {
  try {
    const MetricsServer second("not an address", 0, live_, unexpected);
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "--metrics-port 0 on not an address: not an address of this machine; 127.0.0.1 and 0.0.0.0 "
                 "always are");
  }
}

TEST_F(MetricsServerTest, LeavesThePortToTheNextOne) {
  std::uint16_t port = 0;
  {
    const MetricsServer first("127.0.0.1", 0, live_, unexpected);
    port = first.port();
    request(port, "GET", "/metrics");
  }
  const MetricsServer next("127.0.0.1", port, live_, unexpected);
  EXPECT_EQ(next.url(), "http://127.0.0.1:" + std::to_string(port) + "/");
  EXPECT_THAT(status_line(request(port, "GET", "/metrics")), HasSubstr(" 200 "));
}

// The library would ignore SIGPIPE, and `vdnn train | head` would not end.
TEST_F(MetricsServerTest, LeavesSigpipeAsItWas) {
  struct sigaction action {};
  for (const auto handler : {SIG_IGN, SIG_DFL}) {
    std::signal(SIGPIPE, handler);
    const MetricsServer another("127.0.0.1", 0, live_, unexpected);
    ASSERT_EQ(sigaction(SIGPIPE, nullptr, &action), 0);
    EXPECT_EQ(action.sa_handler, handler);
  }
}

}  // namespace
}  // namespace vdnn
