/// Figures of a running job for Prometheus, over HTTP.
#pragma once

#include <memory>
#include <string>

#include "weft/train/progress.h"

namespace weft::cli {

/// The text form of Prometheus (exposition format 0.0.4) of the newest figures; either may be null.
std::string to_prometheus(const train::WindowFigures* window, const train::EvalFigures* eval);

/// Serves GET /metrics from a thread of its own. Figures may be given from another thread at any
/// time; a reader sees whole ones.
class MetricsServer {
 public:
  /// `port` 0: any free one. Listens on all interfaces, without authentication. Throws
  /// Error(kUsage) where the port is taken.
  explicit MetricsServer(int port);
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
