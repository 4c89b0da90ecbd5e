// The build without liburing.
#include <memory>
#include <string>

#include "weft/io/numbered_files.h"

namespace weft::io {

std::unique_ptr<BlockReads> make_ring_reads(FileSystem& /*files*/,
                                            const BlockReadsOptions& /*options*/,
                                            std::string& why) {
  why = "this build of Weft has no liburing; install liburing-dev and build again";
  return nullptr;
}

}  // namespace weft::io
