/// Private to kernels/cpu: holds oneDNN to one thread.
#pragma once

namespace weft::kernels {

/// While an object lives, oneDNN runs its loops in the calling thread alone.
///
/// oneDNN as packaged runs its loops with OpenMP, in a team as large as the calling thread's
/// setting says. Weft cuts work itself and needs teams of one: other teams would change bits (the
/// weight gradient is split over threads) and oversubscribe the cores. The setting is per thread,
/// so an object is made around each call and puts it back. Weft has no OpenMP of its own: the two
/// functions are those of the runtime that oneDNN brings. Throws Error(kConfig) where oneDNN has
/// another runtime with threads.
class OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  struct Runtime {
    int (*get)() = nullptr;
    void (*set)(int) = nullptr;
  };

  static Runtime find();

  const Runtime* runtime_ = nullptr;
  int before_ = 1;
};

}  // namespace weft::kernels
