#include "tests/io/faulty_file_system.h"

#include <algorithm>
#include <utility>

namespace weft::io {
namespace {

std::vector<std::string> parts_of(const std::string& path) {
  std::vector<std::string> parts;
  std::string part;
  for (const char c : path + "/") {
    if (c != '/') {
      part += c;
    } else if (!part.empty() && part != ".") {
      parts.push_back(std::exchange(part, {}));
    } else {
      part.clear();
    }
  }
  return parts;
}

/// What is left of a file whose new bytes were not synced.
std::string some_of(const std::string& durable, const std::string& bytes, std::mt19937& random) {
  switch (random() % 4) {
    case 0:
      return durable;
    case 1:
      return bytes;
    case 2:
      return bytes.substr(0, random() % (bytes.size() + 1));
    default: {
      std::string holed = bytes;
      const std::size_t begin = random() % (bytes.size() + 1);
      std::fill(holed.begin() + static_cast<std::ptrdiff_t>(begin), holed.end(), '\0');
      return holed;
    }
  }
}

}  // namespace

bool Call::changes() const {
  switch (kind) {
    case CallKind::kOpen:
      return !reads(mode);
    case CallKind::kRead:
    case CallKind::kList:
    case CallKind::kStatus:
    case CallKind::kLock:
    case CallKind::kClose:
      return false;
    default:
      return true;
  }
}

struct FaultyFileSystem::Node {
  using Names = std::map<std::string, NodePtr>;

  Kind kind = Kind::kFile;
  std::string bytes, durable_bytes;
  Names names, durable_names;
  std::vector<std::vector<std::pair<std::string, NodePtr>>> pending;  ///< changes not synced

  static void apply(Names& names, const std::vector<std::pair<std::string, NodePtr>>& change) {
    for (const auto& [name, node] : change) {
      if (node == nullptr) {
        names.erase(name);
      } else {
        names[name] = node;
      }
    }
  }
};

class FaultyFileSystem::MemoryFile : public File {
 public:
  MemoryFile(FaultyFileSystem& files, NodePtr node, std::string path)
      : files_(files), node_(std::move(node)), path_(std::move(path)), life_(files.lives_) {}

  std::error_code write(const void* data, std::int64_t bytes, std::int64_t& written) override {
    written = 0;
    const Verdict verdict = files_.ask({.kind = CallKind::kWrite, .path = path_});
    const std::scoped_lock lock(files_.mutex_);
    if (verdict.what == Verdict::What::kFail || life_ != files_.lives_) {
      return error_of(verdict.error);
    }
    const bool half = verdict.what == Verdict::What::kShort || verdict.what == Verdict::What::kTorn;
    written = half ? (bytes + 1) / 2 : bytes;
    if (verdict.what != Verdict::What::kIgnore) {
      node_->bytes.append(static_cast<const char*>(data), static_cast<std::size_t>(written));
    }
    return verdict.what == Verdict::What::kTorn ? error_of(verdict.error) : std::error_code();
  }

  std::error_code read(std::int64_t offset,
                       void* data,
                       std::int64_t bytes,
                       std::int64_t& got) const override {
    got = 0;
    const Verdict verdict = files_.ask({.kind = CallKind::kRead, .path = path_});
    const std::scoped_lock lock(files_.mutex_);
    if (verdict.what == Verdict::What::kFail) {
      return error_of(verdict.error);
    }
    const auto size = static_cast<std::int64_t>(node_->bytes.size());
    got = std::clamp<std::int64_t>(size - offset, 0, bytes);
    std::copy_n(node_->bytes.data() + std::min(offset, size), got, static_cast<char*>(data));
    return {};
  }

  std::error_code sync() override {
    const Verdict verdict = files_.ask({.kind = CallKind::kSync, .path = path_});
    const std::scoped_lock lock(files_.mutex_);
    if (verdict.what == Verdict::What::kFail || life_ != files_.lives_) {
      return error_of(verdict.error);
    }
    if (verdict.what == Verdict::What::kDo) {
      node_->durable_bytes = node_->bytes;
    }
    return {};
  }

  std::error_code close() override {
    const Verdict verdict = files_.ask({.kind = CallKind::kClose, .path = path_});
    return verdict.what == Verdict::What::kFail ? error_of(verdict.error) : std::error_code();
  }

 private:
  FaultyFileSystem& files_;
  NodePtr node_;
  std::string path_;
  std::int64_t life_;
};

class FaultyFileSystem::MemoryLock : public Lock {
 public:
  MemoryLock(FaultyFileSystem& files, NodePtr node, std::string path)
      : files_(files), node_(std::move(node)), path_(std::move(path)), life_(files.lives_) {}

  ~MemoryLock() override {
    const std::scoped_lock lock(files_.mutex_);
    if (life_ == files_.lives_) {
      files_.locks_.erase(node_.get());
    }
  }

  [[nodiscard]] bool is_current() const override {
    const std::scoped_lock lock(files_.mutex_);
    return life_ == files_.lives_ && files_.find(path_).node == node_;
  }

 private:
  FaultyFileSystem& files_;
  NodePtr node_;
  std::string path_;
  std::int64_t life_;
};

FaultyFileSystem::FaultyFileSystem(const Options& options) : options_(options) {
  root_ = make_node(Kind::kDirectory);
}

FaultyFileSystem::~FaultyFileSystem() {
  for (const NodePtr& node : nodes_) {  // a renamed directory may hold itself after a crash
    node->names.clear();
    node->durable_names.clear();
    node->pending.clear();
  }
}

void FaultyFileSystem::set_hook(Hook hook) {
  const std::scoped_lock lock(mutex_);
  hook_ = std::move(hook);
  calls_.clear();
}

std::vector<Call> FaultyFileSystem::calls() const {
  const std::scoped_lock lock(mutex_);
  return calls_;
}

void FaultyFileSystem::kill() {
  const std::scoped_lock lock(mutex_);
  ++lives_;
  locks_.clear();
}

void FaultyFileSystem::crash(Survival survival, std::uint32_t seed) {
  kill();
  const std::scoped_lock lock(mutex_);
  std::mt19937 random(seed);
  for (const NodePtr& node : nodes_) {
    if (survival == Survival::kNothing) {
      node->bytes = node->durable_bytes;
      node->names = node->durable_names;
    } else if (survival == Survival::kSome) {
      if (node->bytes != node->durable_bytes) {
        node->bytes = some_of(node->durable_bytes, node->bytes, random);
      }
      Node::Names names = node->durable_names;
      for (const auto& change : node->pending) {
        if (random() % 2 == 0) {
          Node::apply(names, change);
        }
      }
      node->names = std::move(names);
    }
    node->durable_bytes = node->bytes;
    node->durable_names = node->names;
    node->pending.clear();
  }
}

/// Counts the call and asks the hook.
Verdict FaultyFileSystem::ask(Call call) {
  thread_local bool asking = false;
  if (asking) {
    return {};
  }
  Hook hook;
  {
    const std::scoped_lock lock(mutex_);
    call.index = static_cast<std::int64_t>(calls_.size());
    calls_.push_back(call);
    if (!hook_) {
      return {};
    }
    hook = hook_;
  }
  asking = true;
  const Verdict verdict = hook(call);
  asking = false;
  return verdict;
}

FaultyFileSystem::Place FaultyFileSystem::find(const std::string& path) const {
  Place place{root_, "", root_};
  for (const std::string& part : parts_of(path)) {
    place.parent =
        place.node != nullptr && place.node->kind == Kind::kDirectory ? place.node : nullptr;
    place.name = part;
    place.node = nullptr;
    if (place.parent != nullptr) {
      const auto found = place.parent->names.find(part);
      place.node = found == place.parent->names.end() ? nullptr : found->second;
    }
  }
  return place;
}

FaultyFileSystem::NodePtr FaultyFileSystem::make_node(Kind kind) {
  nodes_.push_back(std::make_shared<Node>());
  nodes_.back()->kind = kind;
  return nodes_.back();
}

void FaultyFileSystem::change(Node& parent,
                              const std::vector<std::pair<std::string, NodePtr>>& names) {
  Node::apply(parent.names, names);
  parent.pending.push_back(names);
}

Opened FaultyFileSystem::open(const std::string& path, OpenMode mode) {
  const Verdict verdict = ask({.kind = CallKind::kOpen, .path = path, .mode = mode});
  const std::scoped_lock lock(mutex_);
  if (verdict.what == Verdict::What::kFail) {
    return {nullptr, error_of(verdict.error)};
  }
  Place place = find(path);
  if (place.parent == nullptr || (reads(mode) && place.node == nullptr)) {
    return {nullptr, error_of(ENOENT)};
  }
  if (mode == OpenMode::kExclusive && place.node != nullptr) {
    return {nullptr, error_of(EEXIST)};
  }
  if (place.node != nullptr && place.node->kind != Kind::kFile) {
    return {nullptr, error_of(reads(mode) ? EINVAL : EISDIR)};
  }
  if (place.node == nullptr) {
    place.node = make_node(Kind::kFile);
    change(*place.parent, {{place.name, place.node}});
  } else if (mode == OpenMode::kReplace) {
    place.node->bytes.clear();
  }
  return {std::make_unique<MemoryFile>(*this, place.node, path), {}};
}

std::error_code FaultyFileSystem::sync_directory(const std::string& path) {
  const Verdict verdict = ask({.kind = CallKind::kSyncDirectory, .path = path});
  const std::scoped_lock lock(mutex_);
  if (verdict.what == Verdict::What::kFail) {
    return error_of(verdict.error);
  }
  const Place place = find(path);
  if (place.node == nullptr || place.node->kind != Kind::kDirectory) {
    return error_of(ENOENT);
  }
  if (verdict.what == Verdict::What::kDo) {
    place.node->durable_names = place.node->names;
    place.node->pending.clear();
  }
  return {};
}

std::error_code FaultyFileSystem::rename(const std::string& from, const std::string& to) {
  const Verdict verdict = ask({.kind = CallKind::kRename, .path = from, .to = to});
  const std::scoped_lock lock(mutex_);
  if (verdict.what != Verdict::What::kDo) {
    return verdict.what == Verdict::What::kFail ? error_of(verdict.error) : std::error_code();
  }
  const Place old = find(from);
  const Place place = find(to);
  if (old.node == nullptr || place.parent == nullptr) {
    return error_of(ENOENT);
  }
  if (place.node == old.node) {
    return {};
  }
  if (place.node != nullptr) {
    const bool is_directory = place.node->kind == Kind::kDirectory;
    if (is_directory != (old.node->kind == Kind::kDirectory)) {
      return error_of(is_directory ? EISDIR : ENOTDIR);
    }
    if (is_directory && !place.node->names.empty()) {
      return error_of(ENOTEMPTY);
    }
  }
  if (old.parent == place.parent) {
    change(*old.parent, {{old.name, nullptr}, {place.name, old.node}});
  } else {
    change(*place.parent, {{place.name, old.node}});
    change(*old.parent, {{old.name, nullptr}});
  }
  return {};
}

std::error_code FaultyFileSystem::exchange(const std::string& a, const std::string& b) {
  const Verdict verdict = ask({.kind = CallKind::kExchange, .path = a, .to = b});
  const std::scoped_lock lock(mutex_);
  if (verdict.what != Verdict::What::kDo) {
    return verdict.what == Verdict::What::kFail ? error_of(verdict.error) : std::error_code();
  }
  if (!options_.has_exchange) {
    return error_of(EINVAL);
  }
  const Place first = find(a);
  const Place second = find(b);
  if (first.node == nullptr || second.node == nullptr) {
    return error_of(ENOENT);
  }
  if (first.parent == second.parent) {
    change(*first.parent, {{first.name, second.node}, {second.name, first.node}});
  } else {
    change(*first.parent, {{first.name, second.node}});
    change(*second.parent, {{second.name, first.node}});
  }
  return {};
}

std::error_code FaultyFileSystem::link(const std::string& from, const std::string& to) {
  const Verdict verdict = ask({.kind = CallKind::kLink, .path = from, .to = to});
  const std::scoped_lock lock(mutex_);
  if (verdict.what != Verdict::What::kDo) {
    return verdict.what == Verdict::What::kFail ? error_of(verdict.error) : std::error_code();
  }
  const Place old = find(from);
  const Place place = find(to);
  if (old.node == nullptr || place.parent == nullptr) {
    return error_of(ENOENT);
  }
  if (old.node->kind != Kind::kFile) {
    return error_of(EPERM);
  }
  if (place.node != nullptr) {
    return error_of(EEXIST);
  }
  change(*place.parent, {{place.name, old.node}});
  return {};
}

std::error_code FaultyFileSystem::remove(const std::string& path) {
  const Verdict verdict = ask({.kind = CallKind::kRemove, .path = path});
  const std::scoped_lock lock(mutex_);
  if (verdict.what != Verdict::What::kDo) {
    return verdict.what == Verdict::What::kFail ? error_of(verdict.error) : std::error_code();
  }
  const Place place = find(path);
  if (place.node == nullptr) {
    return error_of(ENOENT);
  }
  if (!place.node->names.empty()) {
    return error_of(ENOTEMPTY);
  }
  change(*place.parent, {{place.name, nullptr}});
  return {};
}

std::error_code FaultyFileSystem::make_directory(const std::string& path) {
  const Verdict verdict = ask({.kind = CallKind::kMakeDirectory, .path = path});
  const std::scoped_lock lock(mutex_);
  if (verdict.what != Verdict::What::kDo) {
    return verdict.what == Verdict::What::kFail ? error_of(verdict.error) : std::error_code();
  }
  const Place place = find(path);
  if (place.parent == nullptr || place.node != nullptr) {
    return error_of(place.parent == nullptr ? ENOENT : EEXIST);
  }
  change(*place.parent, {{place.name, make_node(Kind::kDirectory)}});
  return {};
}

Listed FaultyFileSystem::list(const std::string& path) {
  const Verdict verdict = ask({.kind = CallKind::kList, .path = path});
  const std::scoped_lock lock(mutex_);
  if (verdict.what == Verdict::What::kFail) {
    return {{}, error_of(verdict.error)};
  }
  const Place place = find(path);
  if (place.node == nullptr || place.node->kind != Kind::kDirectory) {
    return {{}, error_of(place.node == nullptr ? ENOENT : ENOTDIR)};
  }
  Listed out;
  for (const auto& [name, node] : place.node->names) {
    out.names.push_back(name);
  }
  return out;
}

Status FaultyFileSystem::status(const std::string& path) {
  const Verdict verdict = ask({.kind = CallKind::kStatus, .path = path});
  const std::scoped_lock lock(mutex_);
  if (verdict.what == Verdict::What::kFail) {
    return {Kind::kMissing, 0, error_of(verdict.error)};
  }
  const Place place = find(path);
  if (place.node == nullptr) {
    return {};
  }
  return {place.node->kind, static_cast<std::int64_t>(place.node->bytes.size()), {}};
}

Locked FaultyFileSystem::lock(const std::string& path) {
  const Verdict verdict = ask({.kind = CallKind::kLock, .path = path});
  const std::scoped_lock lock(mutex_);
  if (verdict.what == Verdict::What::kFail) {
    return {LockOutcome::kFailed, nullptr, error_of(verdict.error)};
  }
  if (!options_.has_locks) {
    return {LockOutcome::kUnsupported, nullptr, error_of(ENOLCK)};
  }
  Place place = find(path);
  if (place.parent == nullptr) {
    return {LockOutcome::kFailed, nullptr, error_of(ENOENT)};
  }
  if (place.node == nullptr) {
    place.node = make_node(Kind::kFile);
    change(*place.parent, {{place.name, place.node}});
  }
  if (locks_.contains(place.node.get())) {
    return {LockOutcome::kBusy, nullptr, error_of(EAGAIN)};
  }
  locks_[place.node.get()] = lives_;
  return {LockOutcome::kHeld, std::make_unique<MemoryLock>(*this, place.node, path), {}};
}

}  // namespace weft::io
