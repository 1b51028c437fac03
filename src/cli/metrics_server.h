#pragma once
// `vdnn train --metrics-port`: shows training while it runs, over HTTP, to programs (Prometheus) and people.
//
//   /              a page that draws the figures
//   /metrics       the text format of Prometheus
//   /metrics.json  the figures of the page
//
// Clients cannot change anything: methods other than GET and HEAD are refused with status 405, or 400 if HTTP
// does not define them. On a loopback address it answers only requests whose Host is that address or another
// name of this machine. Otherwise a page of another site, whose owner makes its name resolve to 127.0.0.1,
// could read the figures in a browser on this machine.
//
// One thread accepts connections and four answer them. These threads read snapshots (LiveMetrics) and block
// signals. The server accepts at most 20 connections at once; the kernel queues a few more. A connection that
// sends nothing is closed after a second. A connection that sends a byte now and then occupies its thread,
// and four such connections block all others.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "src/report/live_metrics.h"

namespace vdnn {

class MetricsServer {
 public:
  // Listens from its construction on. Port 0: any free port. `warn` is called on another thread if the server
  // ends by itself. It must stay callable until the server has ended, which may be after this object is
  // destroyed. Throws InvalidArgument, which names the options, if it cannot listen there, for example
  // because another program listens there.
  MetricsServer(const std::string& address, std::uint16_t port,
                const std::shared_ptr<const LiveMetrics>& metrics,
                const std::function<void(const std::string&)>& warn);
  // Finishes answers under way, but waits at most two seconds for slow clients.
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  std::uint16_t port() const;
  // The page's URL: http://127.0.0.1:8080/.
  std::string url() const;

 private:
  class Listener;
  std::string address_;
  std::uint16_t port_ = 0;
  std::shared_ptr<Listener> listener_;  // shared with its threads
};

}  // namespace vdnn
