/// Standard output and standard error, which may be closed, full, or a reader that has gone.
#pragma once

#include <string>
#include <string_view>

namespace weft::cli {

/// Opens what is closed of file descriptors 0, 1 and 2 on /dev/null, so that no file of the job
/// gets one of those numbers and what is printed with it. Call it first.
void open_standard_streams();

/// Progress, log lines and errors. Goes on where it cannot be written: a run is worth more than
/// its messages. `text` ends with a line's end; where a status is shown, it comes above it. From
/// any thread.
void write_error(std::string_view text);

/// Shows `text`, shorter than a row of the terminal that standard error is, on the last row instead
/// of the status before; "" removes it. From any thread.
void show_status(std::string_view text);

/// Throws Error(kIo) where what was printed did not reach standard output.
void flush_output();

/// A figure with so many digits behind the point; "-" where it is not finite.
std::string figure(double value, int digits);

}  // namespace weft::cli
