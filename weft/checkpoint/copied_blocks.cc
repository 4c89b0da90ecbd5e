#include "weft/checkpoint/copied_blocks.h"

#include <cstdint>
#include <cstring>

#include "weft/base/at.h"
#include "weft/checkpoint/element_hash.h"

namespace weft::checkpoint {
CopiedBlocks::CopiedBlocks(const SaveSources& sources) {
  sources.for_each_block(
      [this](const StateSource& source, std::size_t index, const StateItem& item) {
        std::vector<std::byte>& copy =
            bytes_.emplace_back(at(item.held().size() * item_row_bytes(item)));
        if (!copy.empty()) {
          source.read_state(index, item.row_begin, item.held().size(), copy.data());
        }
        items_.push_back(item);
      });
  sources_.emplace(std::span(&self_, 1));
}

void CopiedBlocks::read_state(std::size_t index,
                              std::int64_t row_begin,
                              std::int64_t rows,
                              void* out) const {
  const StateItem& item = items_[index];
  std::memcpy(out, bytes_[index].data() + item.held().index(row_begin) * item_row_bytes(item),
              at(rows * item_row_bytes(item)));
}

}  // namespace weft::checkpoint
