/// Event files that TensorBoard reads: figures by step.
///
/// Format   records of a length, its checksum, an Event message of TensorFlow's event.proto in
///          protobuf's wire form, and its checksum; checksums are masked CRC-32C
///          (tensorflow/core/lib/io/record_writer.h). Only what figures need: wall_time, step,
///          file_version, and a summary of (tag, simple_value).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "weft/train/record_files.h"

namespace weft::train {

/// Castagnoli's CRC of bytes, e.g. 0xE3069283 of "123456789".
std::uint32_t crc32c(std::string_view bytes);

/// A value that TensorBoard draws by step, under its tag. The file keeps it as fp32.
struct Figure {
  std::string tag;  ///< "train/loss": what stands before the slash is a group
  double value = 0;
};

/// Appends figures to one event file, which it opens for each write. One thread at a time.
class EventFile {
 public:
  /// A new file in `folder`, which is made; earlier files stay and TensorBoard shows them as
  /// earlier parts of the run. Throws Error(kIo).
  explicit EventFile(const std::string& folder);

  /// Writes through to the file. Figures that are not finite are left out. Throws Error(kIo); then
  /// the file has no part of them, and the next figures may be added.
  void add(std::int64_t step, std::span<const Figure> figures);

  [[nodiscard]] const std::string& path() const { return file_.path(); }

 private:
  void write_record(const std::string& event);

  AppendFile file_;
};

}  // namespace weft::train
