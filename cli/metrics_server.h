/// Figures of a running job for Prometheus, over HTTP.
#pragma once

#include <memory>

#include "cli/page_server.h"
#include "weft/train/progress.h"

namespace weft::cli {

/// Serves GET /metrics from a thread of its own, with what page_server.h bounds. Figures may be
/// given from another thread at any time; a reader sees whole ones.
class MetricsServer {
 public:
  /// Without authentication. Throws Error(kUsage) where it cannot listen there.
  explicit MetricsServer(const ListenAddress& address);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  [[nodiscard]] int port() const;

  void set(const train::WindowFigures& window);
  void set(const train::EvalFigures& eval);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::cli
