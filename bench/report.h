/// Figures, their limits, and the one JSON form of all benchmarks (bench/README.md describes it).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace weft::bench {

/// Order statistics of repeated measurements.
struct Spread {
  double median = 0.0;
  double min = 0.0;
  double max = 0.0;
  double q1 = 0.0;  ///< quartiles, interpolated
  double q3 = 0.0;
};

/// Requires at least one value.
Spread spread(std::vector<double> values);

/// What a figure cannot exceed, measured in the same run, in the figure's unit.
struct Limit {
  std::string name;
  std::vector<double> values;  ///< one per measurement
};

enum class Better { kHigher, kLower };

/// One measured quantity.
struct Figure {
  std::string name;
  std::map<std::string, std::string> parameters;  ///< what was measured, e.g. {"batch", "2048"}
  std::string unit;                               ///< e.g. "samples/s", "ms"
  Better better = Better::kHigher;
  std::vector<double> values;  ///< one per repetition
  std::optional<Limit> limit;

  /// Median over limit, or limit over median where lower is better: 1 is the limit itself.
  [[nodiscard]] double share() const;
};

/// The figures of a program with the machine's description, as JSON text.
std::string to_json(const std::string& program, const std::vector<Figure>& figures);

/// The same into a file. Throws Error(kIo).
void write_json(const std::string& path,
                const std::string& program,
                const std::vector<Figure>& figures);

/// Figures as lines of text: name, parameters, median, quartiles, limit, share.
std::string to_text(const std::vector<Figure>& figures);

}  // namespace weft::bench
