#include "cli/metrics_server.h"

#include <mutex>
#include <optional>
#include <string>

#include "cli/prometheus.h"

namespace weft::cli {

struct MetricsServer::Impl {
  std::mutex mutex;  // of the two below
  std::optional<train::WindowFigures> window;
  std::optional<train::EvalFigures> eval;
  PageServer server;  // the last: its thread reads the others

  explicit Impl(const ListenAddress& address) : server(address, [this] { return text(); }) {}

  std::string text() {
    const std::lock_guard lock(mutex);
    return to_prometheus(window ? &*window : nullptr, eval ? &*eval : nullptr);
  }
};

MetricsServer::MetricsServer(const ListenAddress& address)
    : impl_(std::make_unique<Impl>(address)) {
}

MetricsServer::~MetricsServer() = default;

int MetricsServer::port() const {
  return impl_->server.port();
}

void MetricsServer::set(const train::WindowFigures& window) {
  const std::lock_guard lock(impl_->mutex);
  impl_->window = window;
}

void MetricsServer::set(const train::EvalFigures& eval) {
  const std::lock_guard lock(impl_->mutex);
  impl_->eval = eval;
}

}  // namespace weft::cli
