#include "weft/data/weft_layout.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/data/file_kind.h"

namespace weft::data::layout {
namespace {

void append_name(std::vector<std::byte>& out, const std::string& name, std::uint8_t flags) {
  if (name.empty() || name.size() > 65535) {
    fail(ErrorCode::kData,
         "a column name of {} bytes cannot be written to a weft file; use 1 to 65535 bytes",
         name.size());
  }
  append<std::uint8_t>(out, flags);
  append<std::uint8_t>(out, 0);
  append(out, static_cast<std::uint16_t>(name.size()));
  append_bytes(out, name.data(), name.size());
}

struct Name {
  std::string text;
  std::uint8_t flags;
};

// Reads the names one by one and never past `end`.
class NameReader {
 public:
  NameReader(const std::byte* at, const std::byte* end, const std::string& file)
      : at_(at), end_(end), file_(file) {}

  Name next() {
    if (end_ - at_ < 4) {
      fail_short();
    }
    const auto flags = load<std::uint8_t>(at_);
    const auto length = load<std::uint16_t>(at_ + 2);
    at_ += 4;
    if (end_ - at_ < length || length == 0) {
      fail_short();
    }
    Name name{std::string(reinterpret_cast<const char*>(at_), length), flags};
    at_ += length;
    return name;
  }

 private:
  [[noreturn]] void fail_short() const {
    fail(ErrorCode::kData,
         "{}: the header's column names do not fit in it; the file is damaged, write it again",
         file_);
  }

  const std::byte* at_;
  const std::byte* end_;
  const std::string& file_;
};

// How the bags of a block are written, chosen by their contents.
struct BagsShape {
  std::uint8_t offset_bytes = 0;
  std::uint8_t id_bytes = 0;
  std::uint64_t offsets = 0;  // padded bytes of each part
  std::uint64_t ids = 0;
  std::uint64_t weights = 0;

  [[nodiscard]] std::uint64_t bytes() const { return kCategoricalHeader + offsets + ids + weights; }
};

BagsShape shape_of(const RawBlock::Bags& bags, std::int64_t samples) {
  const std::size_t count = bags.ids.size();
  WEFT_CHECK(count <= 0xffffffffU, "{} ids in one block", count);
  BagsShape shape;
  std::uint64_t uneven = count ^ static_cast<std::uint64_t>(samples);
  for (std::size_t i = 0; uneven == 0 && i < bags.offsets.size(); ++i) {
    uneven = static_cast<std::uint64_t>(bags.offsets[i]) ^ i;
  }
  std::uint64_t all = 0;
  for (const std::int64_t id : bags.ids) {
    all |= static_cast<std::uint64_t>(id);
  }
  shape.offset_bytes = uneven == 0 ? 0 : count <= 0xffff ? 2 : 4;
  // The narrowest unsigned width that holds all ids; 8 keeps any.
  shape.id_bytes = all <= 0xff ? 1 : all <= 0xffff ? 2 : all <= 0xffffffff ? 4 : 8;
  shape.offsets = uneven == 0 ? 0 : padded(bags.offsets.size() * shape.offset_bytes);
  shape.ids = padded(count * shape.id_bytes);
  shape.weights = padded(bags.weights.size() * sizeof(float));
  return shape;
}

// The last word of a part, which its numbers may not fill.
void clear_padding(std::byte* out, std::uint64_t bytes) {
  if (bytes > 0) {
    std::memset(out + bytes - 8, 0, 8);
  }
}

template <typename T>
void narrow(const std::vector<std::int64_t>& values, std::byte* out) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const T value = static_cast<T>(values[i]);
    std::memcpy(out + i * sizeof(T), &value, sizeof(T));
  }
}

void write_integers(const std::vector<std::int64_t>& values,
                    std::uint8_t width,
                    std::byte* out,
                    std::uint64_t bytes) {
  clear_padding(out, bytes);
  switch (width) {
    case 1:
      return narrow<std::uint8_t>(values, out);
    case 2:
      return narrow<std::uint16_t>(values, out);
    case 4:
      return narrow<std::uint32_t>(values, out);
    default:
      return narrow<std::int64_t>(values, out);
  }
}

void write_floats(const std::vector<float>& values, std::byte* out, std::uint64_t bytes) {
  clear_padding(out, bytes);
  if (!values.empty()) {
    std::memcpy(out, values.data(), values.size() * sizeof(float));
  }
}

void write_bags(const RawBlock::Bags& bags, const BagsShape& shape, std::byte* out) {
  const auto count = static_cast<std::uint32_t>(bags.ids.size());
  const std::array<std::uint8_t, 4> head = {
      shape.offset_bytes, shape.id_bytes, static_cast<std::uint8_t>(shape.weights > 0 ? 1 : 0), 0};
  std::memcpy(out, head.data(), head.size());
  std::memcpy(out + head.size(), &count, sizeof count);
  out += kCategoricalHeader;
  if (shape.offset_bytes != 0) {
    write_integers(bags.offsets, shape.offset_bytes, out, shape.offsets);
  }
  out += shape.offsets;
  write_integers(bags.ids, shape.id_bytes, out, shape.ids);
  write_floats(bags.weights, out + shape.ids, shape.weights);
}

void check_bags(const RawBlock::Bags& bags,
                std::int64_t samples,
                const Schema::Categorical& column) {
  WEFT_CHECK(std::cmp_equal(bags.offsets.size(), samples + 1) && bags.offsets.front() == 0 &&
                 std::cmp_equal(bags.ids.size(), bags.offsets.back()) &&
                 bags.weights.size() == (column.weighted ? bags.ids.size() : 0),
             "the bags of column '{}' do not fit together", column.name);
  const std::int64_t most = column.multi_valued ? std::numeric_limits<std::int64_t>::max() : 1;
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i + 1 < bags.offsets.size(); ++i) {
    const std::int64_t length = bags.offsets[i + 1] - bags.offsets[i];
    wrong |= length | (most - length);  // negative where either is
  }
  WEFT_CHECK(wrong >= 0, "a bag of column '{}' has fewer than 0 or more than {} ids", column.name,
             most);
}

}  // namespace

void append_bytes(std::vector<std::byte>& out, const void* data, std::size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(data);
  out.insert(out.end(), begin, begin + bytes);
}

void pad(std::vector<std::byte>& out) {
  out.resize(padded(out.size()));
}

std::vector<std::byte> encode_header(const Schema& schema) {
  std::vector<std::byte> out;
  append_bytes(out, kMagic, kMagicBytes);
  append(out, kVersion);
  append<std::uint32_t>(out, 0);  // length, below
  append(out, static_cast<std::uint32_t>(schema.dense.size()));
  append(out, static_cast<std::uint32_t>(schema.categorical.size()));
  append(out, static_cast<std::uint32_t>(schema.labels.size()));
  append<std::uint32_t>(out, 0);
  for (const std::string& name : schema.dense) {
    append_name(out, name, 0);
  }
  for (const Schema::Categorical& column : schema.categorical) {
    const int flags = (column.multi_valued ? kMultiValued : 0) | (column.weighted ? kWeighted : 0);
    append_name(out, column.name, static_cast<std::uint8_t>(flags));
  }
  for (const std::string& name : schema.labels) {
    append_name(out, name, 0);
  }
  pad(out);
  const auto length = static_cast<std::uint32_t>(out.size() + 8);
  std::memcpy(out.data() + 12, &length, sizeof(length));
  append(out, hash_bytes(out));
  return out;
}

Schema decode_header(std::span<const std::byte> file, const std::string& name, std::size_t& bytes) {
  if (file.empty()) {
    fail(ErrorCode::kData, "{}: the file is empty; write it with 'weft data convert'", name);
  }
  if (file.size() < kMagicBytes || std::memcmp(file.data(), kMagic, kMagicBytes) != 0) {
    fail(ErrorCode::kData, "{}: not a weft file (it does not begin with {}); {}", name, kMagic,
         what_reads(file));
  }
  const std::size_t least = kHeaderFixed + 8;
  if (file.size() < least) {
    fail(ErrorCode::kData, "{}: cut after {} bytes, inside the header; copy or write it again",
         name, file.size());
  }
  const auto version = load<std::uint32_t>(file.data() + 8);
  if (version != kVersion) {
    fail(ErrorCode::kData,
         "{}: weft format version {}, but this program reads version {}; convert the data again "
         "with this program, or use the one that wrote it",
         name, version, kVersion);
  }
  bytes = load<std::uint32_t>(file.data() + 12);
  if (bytes < least || bytes % 8 != 0 || bytes > file.size()) {
    fail(ErrorCode::kData,
         "{}: a header of {} bytes in a file of {}; the file is cut or damaged, write it again",
         name, bytes, file.size());
  }
  if (load<std::uint64_t>(file.data() + bytes - 8) != hash_bytes(file.first(bytes - 8))) {
    fail(ErrorCode::kData,
         "{}: the header's checksum does not match; the file is damaged, write it again", name);
  }
  NameReader names(file.data() + kHeaderFixed, file.data() + bytes - 8, name);
  Schema schema;
  const auto count = [&](std::size_t offset) { return load<std::uint32_t>(file.data() + offset); };
  for (std::uint32_t i = 0; i < count(16); ++i) {
    schema.dense.push_back(names.next().text);
  }
  for (std::uint32_t i = 0; i < count(20); ++i) {
    Name next = names.next();
    schema.categorical.push_back(
        {std::move(next.text), (next.flags & kMultiValued) != 0, (next.flags & kWeighted) != 0});
  }
  for (std::uint32_t i = 0; i < count(24); ++i) {
    schema.labels.push_back(names.next().text);
  }
  return schema;
}

void check_block(const RawBlock& block, const Schema& schema) {
  WEFT_CHECK(block.dense.size() == schema.dense.size() &&
                 block.categorical.size() == schema.categorical.size() &&
                 block.labels.size() == schema.labels.size(),
             "a block of another schema");
  for (const auto* columns : {&block.dense, &block.labels}) {
    for (const std::vector<float>& column : *columns) {
      WEFT_CHECK(std::cmp_equal(column.size(), block.size), "{} values of {}", column.size(),
                 block.size);
    }
  }
  for (std::size_t i = 0; i < block.categorical.size(); ++i) {
    check_bags(block.categorical[i], block.size, schema.categorical[i]);
  }
}

void encode_block(const RawBlock& block, const Schema& schema, EncodedBlock& out) {
  check_block(block, schema);
  std::vector<BagsShape> shapes;
  shapes.reserve(block.categorical.size());
  const std::uint64_t floats = padded(static_cast<std::uint64_t>(block.size) * sizeof(float));
  std::uint64_t bytes = floats * (block.dense.size() + block.labels.size());
  for (const RawBlock::Bags& bags : block.categorical) {
    shapes.push_back(shape_of(bags, block.size));
    bytes += shapes.back().bytes();
  }
  out.samples = block.size;
  out.bytes.resize(bytes);
  out.columns.clear();
  std::uint64_t at = 0;
  const auto finish_column = [&](std::uint64_t length) {
    out.columns.push_back({at, length, hash_bytes(std::span(out.bytes).subspan(at, length))});
    at += length;
  };
  for (const std::vector<float>& column : block.dense) {
    write_floats(column, out.bytes.data() + at, floats);
    finish_column(floats);
  }
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    write_bags(block.categorical[i], shapes[i], out.bytes.data() + at);
    finish_column(shapes[i].bytes());
  }
  for (const std::vector<float>& column : block.labels) {
    write_floats(column, out.bytes.data() + at, floats);
    finish_column(floats);
  }
}

void encode_bags(const RawBlock::Bags& bags, std::int64_t samples, std::vector<std::byte>& out) {
  const BagsShape shape = shape_of(bags, samples);
  const std::size_t start = out.size();
  out.resize(start + shape.bytes());
  write_bags(bags, shape, out.data() + start);
}

BagsView decode_bags(std::span<const std::byte> chunk,
                     std::int64_t samples,
                     const Schema::Categorical& column,
                     const std::string& where) {
  const auto damaged = [&](const char* what) {
    fail(ErrorCode::kData, "{}: {}; the file is damaged, write it again", where, what);
  };
  if (chunk.size() < kCategoricalHeader) {
    damaged("too short for its header");
  }
  BagsView view;
  view.offset_bytes = load<std::uint8_t>(chunk.data());
  view.id_bytes = load<std::uint8_t>(chunk.data() + 1);
  view.count = load<std::uint32_t>(chunk.data() + 4);
  const bool weights = load<std::uint8_t>(chunk.data() + 2) != 0;
  if (view.offset_bytes != 0 && view.offset_bytes != 2 && view.offset_bytes != 4) {
    damaged("offsets of an unknown width");
  }
  if (!std::has_single_bit(view.id_bytes) || view.id_bytes > 8) {
    damaged("ids of an unknown width");
  }
  // A block without ids has no weights to speak of, whatever the column.
  if (weights != (column.weighted && view.count > 0)) {
    damaged("weights where the schema has none, or none where it has them");
  }
  const auto n = static_cast<std::uint64_t>(samples);
  const std::uint64_t offsets = padded(view.offset_bytes == 0 ? 0 : (n + 1) * view.offset_bytes);
  const std::uint64_t ids = padded(std::uint64_t{view.count} * view.id_bytes);
  const std::uint64_t weight_bytes = weights ? padded(std::uint64_t{view.count} * 4) : 0;
  if (kCategoricalHeader + offsets + ids + weight_bytes != chunk.size()) {
    damaged("its parts do not add up to its length");
  }
  view.offsets = chunk.data() + kCategoricalHeader;
  view.ids = view.offsets + offsets;
  view.weights = weights ? view.ids + ids : nullptr;
  if (view.offset_bytes == 0 ? view.count != n
                             : view.offset(0) != 0 || view.offset(n) != view.count) {
    damaged("its offsets do not cover its ids");
  }
  for (std::size_t i = 0; view.offset_bytes != 0 && i < n; ++i) {
    if (view.offset(i) > view.offset(i + 1)) {
      damaged("its offsets fall");
    }
    if (!column.multi_valued && view.offset(i + 1) - view.offset(i) > 1) {
      damaged("a sample with several ids in a column of single ids");
    }
  }
  return view;
}

}  // namespace weft::data::layout
