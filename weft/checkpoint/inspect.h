/// What is in a checkpoint, for people and for programs. Reads nothing but the manifest and, where
/// tables have rows that are not stored, the footers of segments: to count those that are.
#pragma once

#include <string>

#include "weft/checkpoint/checkpoint_reader.h"

namespace weft::checkpoint {

/// Step, job, parent, hashes, then tables of items, of sets of segments, and of blobs and files.
/// Ends with a line's end.
std::string inspect_text(const CheckpointReader& reader);

/// The same as a JSON object (docs/cli.md has its members), with the texts of configuration and
/// plan. Ends with a line's end.
std::string inspect_json(const CheckpointReader& reader);

}  // namespace weft::checkpoint
