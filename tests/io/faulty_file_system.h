/// A file system in memory that fails as it is told, and forgets what was not synced.
///
/// Every call can fail, be left out, or be a write that is cut short or torn. crash() imitates a
/// crash of the machine: of bytes and names that were not synced nothing survives, all, or some, in
/// any order. kill() imitates the end of a process: all survives, its locks go.
#pragma once

#include <cerrno>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "weft/io/file_system.h"

namespace weft::io {

enum class CallKind {
  kOpen,
  kRead,
  kWrite,
  kSync,
  kClose,
  kSyncDirectory,
  kRename,
  kExchange,
  kLink,
  kRemove,
  kMakeDirectory,
  kList,
  kStatus,
  kLock,
};

struct Call {
  std::int64_t index = 0;  ///< of all calls since the hook was set
  CallKind kind{};
  std::string path;     ///< of two names the first
  std::string to = {};  ///< the second
  OpenMode mode = OpenMode::kRead;

  /// Whether it may change what is on the disk.
  [[nodiscard]] bool changes() const;
};

/// What becomes of a call.
struct Verdict {
  enum class What {
    kDo,
    kFail,    ///< nothing is done, and it returns `error`
    kIgnore,  ///< nothing is done, and it returns success
    kShort,   ///< a write takes half of its bytes, and says so
    kTorn,    ///< a write takes half of its bytes, and returns `error`
  };
  What what = What::kDo;
  int error = EIO;
};

/// Called before every call, without a lock held, so it may make calls itself (they have no hook);
/// several threads may call it at once.
using Hook = std::function<Verdict(const Call&)>;

/// What survives a crash of what was not synced.
enum class Survival { kNothing, kAll, kSome };

class FaultyFileSystem : public FileSystem {
 public:
  struct Options {
    bool has_exchange = true;
    bool has_locks = true;
  };

  FaultyFileSystem() : FaultyFileSystem(Options{}) {}

  explicit FaultyFileSystem(const Options& options);
  ~FaultyFileSystem() override;

  /// Counts calls anew, and asks `hook` about each; empty: all are done.
  void set_hook(Hook hook);

  /// The calls since then.
  [[nodiscard]] std::vector<Call> calls() const;

  /// The process ends: its open files and locks are gone, its changes stay.
  void kill();

  /// The machine ends too. With kSome `seed` says what survives.
  void crash(Survival survival, std::uint32_t seed = 0);

  Opened open(const std::string& path, OpenMode mode) override;
  std::error_code sync_directory(const std::string& path) override;
  std::error_code rename(const std::string& from, const std::string& to) override;
  std::error_code exchange(const std::string& a, const std::string& b) override;
  std::error_code link(const std::string& from, const std::string& to) override;
  std::error_code remove(const std::string& path) override;
  std::error_code make_directory(const std::string& path) override;
  Listed list(const std::string& path) override;
  Status status(const std::string& path) override;
  Locked lock(const std::string& path) override;

 private:
  struct Node;
  class MemoryFile;
  class MemoryLock;
  using NodePtr = std::shared_ptr<Node>;

  /// Where a path leads: the directory that holds its last name, and what has that name.
  struct Place {
    NodePtr parent;  ///< null where it does not exist
    std::string name;
    NodePtr node;  ///< null where it does not exist
  };

  Verdict ask(Call call);
  [[nodiscard]] Place find(const std::string& path) const;
  NodePtr make_node(Kind kind);
  void change(Node& parent, const std::vector<std::pair<std::string, NodePtr>>& names);

  const Options options_;
  mutable std::recursive_mutex mutex_;
  Hook hook_;
  std::vector<Call> calls_;
  NodePtr root_;
  std::vector<NodePtr> nodes_;  ///< all there have been
  std::map<Node*, std::int64_t> locks_;
  std::int64_t lives_ = 0;  ///< of the process: what an earlier one has open is dead
};

}  // namespace weft::io
