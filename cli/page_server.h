/// One page over HTTP, served from a thread beside a job that nothing may disturb.
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace weft::cli {

/// Where a server listens.
struct ListenAddress {
  std::string host = "127.0.0.1";  ///< a numeric address or a name; "0.0.0.0" is all of IPv4
  int port = 0;                    ///< 0 = any free one
};

/// Answers GET /metrics with the text of `page`; another path with 404, another method with 405, a
/// request head longer than 4 KiB with 431. A connection serves one request and is closed.
///
/// What clients can take is bounded, whatever they do: 8 connections at a time, each with 4 KiB of
/// request and one copy of the page, for one second; 200 connections a second; 10 descriptors with
/// the server's own two; some 2 % of a core. Where all 8 are taken, the oldest is closed for a new
/// one once it is 0.1 s old, so that clients that say nothing cannot keep out one that asks. Those
/// that wait to be accepted are the kernel's, at most 64.
class PageServer {
 public:
  /// `page` is called by the server's thread; an exception of it closes the connection. Throws
  /// Error(kUsage) where it cannot listen.
  PageServer(const ListenAddress& address, std::function<std::string()> page);
  /// Ends connections at once and waits for the thread.
  ~PageServer();
  PageServer(const PageServer&) = delete;
  PageServer& operator=(const PageServer&) = delete;

  /// The port it listens at.
  [[nodiscard]] int port() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::cli
