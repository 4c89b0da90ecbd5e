// One thread and one poll() over a fixed number of sockets, none of which ever blocks.
#include "cli/page_server.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "weft/base/error.h"

namespace weft::cli {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t kMostConnections = 8;
constexpr std::size_t kMostRequest = 4096;  // bytes of a request's head
constexpr milliseconds kLifetime{1000};     // of a connection
constexpr milliseconds kLeastAge{100};      // of one that is closed for another
constexpr milliseconds kWindow{100};        // in which
constexpr int kMostAccepted = 20;           // connections are accepted at most, and
constexpr int kMostRounds = 100;            // times something is done: 2 % of a core
constexpr int kBacklog = 64;
constexpr int kReceiveBuffer = 16384;  // bytes the kernel keeps of a connection

/// A file descriptor that is closed with its owner.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}

  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}

  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }

  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  ~Descriptor() {
    if (number_ >= 0) {
      close(number_);
    }
  }

  [[nodiscard]] int number() const { return number_; }

 private:
  int number_;
};

std::string reply_of(std::string_view status, std::string_view more, std::string_view body) {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\n"
      "Connection: close\r\n{}\r\n{}",
      status, body.size(), more, body);
}

/// The answer to a request whose head is complete.
std::string answer(std::string_view head, const std::function<std::string()>& page) {
  const std::string_view line = head.substr(0, head.find("\r\n"));
  const std::size_t method_end = line.find(' ');
  const std::size_t target_end = line.rfind(' ');
  if (method_end == target_end || line.substr(target_end + 1).substr(0, 5) != "HTTP/") {
    return reply_of("400 Bad Request", "", "not a request of HTTP\n");
  }
  if (line.substr(0, method_end) != "GET") {
    return reply_of("405 Method Not Allowed", "Allow: GET\r\n", "only GET\n");
  }
  const std::string_view target = line.substr(method_end + 1, target_end - method_end - 1);
  if (target.substr(0, target.find('?')) != "/metrics") {
    return reply_of("404 Not Found", "", "figures are at /metrics\n");
  }
  return reply_of("200 OK", "", page());
}

/// A client: its request, then the reply to it.
class Connection {
 public:
  Connection(Descriptor socket, Clock::time_point now) : socket_(std::move(socket)), since_(now) {}

  [[nodiscard]] int socket() const { return socket_.number(); }

  [[nodiscard]] Clock::time_point since() const { return since_; }

  /// The events that poll() waits for.
  [[nodiscard]] short awaited() const { return reply_.empty() ? POLLIN : POLLOUT; }

  /// One reading of the socket, or the sending of what it takes. Returns whether it is done.
  bool advance(const std::function<std::string()>& page) {
    if (reply_.empty() && !receive(page)) {
      return true;
    }
    return !reply_.empty() && send_rest();
  }

 private:
  /// Reads what there is of the request's head; makes the reply once it is whole. Returns whether
  /// the client is still there.
  bool receive(const std::function<std::string()>& page) {
    const ssize_t count = recv(socket(), head_.data() + received_, head_.size() - received_, 0);
    if (count <= 0) {
      return count < 0 && (errno == EAGAIN || errno == EINTR);
    }
    received_ += static_cast<std::size_t>(count);
    const std::string_view head(head_.data(), received_);
    if (const std::size_t end = head.find("\r\n\r\n"); end != std::string_view::npos) {
      reply_ = answer(head.substr(0, end), page);
    } else if (received_ == head_.size()) {
      reply_ = reply_of("431 Request Header Fields Too Large", "", "at most 4096 bytes\n");
    }
    return true;
  }

  /// Returns whether all is sent, or cannot be.
  bool send_rest() {
    while (sent_ < reply_.size()) {
      const ssize_t count =
          send(socket(), reply_.data() + sent_, reply_.size() - sent_, MSG_NOSIGNAL);
      if (count < 0) {
        return errno != EAGAIN && errno != EINTR;
      }
      sent_ += static_cast<std::size_t>(count);
    }
    return true;
  }

  Descriptor socket_;
  Clock::time_point since_;
  std::array<char, kMostRequest> head_;
  std::size_t received_ = 0;
  std::string reply_;  // empty until the head is there
  std::size_t sent_ = 0;
};

[[noreturn]] void refuse(const ListenAddress& address, const std::string& why) {
  fail(ErrorCode::kUsage,
       "--metrics-port {}: cannot listen at {}: {}; choose a free port, or 0, and with "
       "--metrics-address an address of this machine",
       address.port, address.host, why);
}

Descriptor listen_at(const ListenAddress& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const std::string port = std::to_string(address.port);
  if (const int error = getaddrinfo(address.host.c_str(), port.c_str(), &hints, &list)) {
    refuse(address, gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, freeaddrinfo);
  Descriptor found(socket(list->ai_family, list->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int yes = 1;  // a port whose last connections have just been closed is free
  if (found.number() < 0 ||
      setsockopt(found.number(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0 ||
      setsockopt(found.number(), SOL_SOCKET, SO_RCVBUF, &kReceiveBuffer, sizeof(int)) != 0 ||
      bind(found.number(), list->ai_addr, list->ai_addrlen) != 0 ||
      listen(found.number(), kBacklog) != 0) {
    refuse(address, std::strerror(errno));
  }
  return found;
}

int port_of(const Descriptor& listener) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  WEFT_CHECK(getsockname(listener.number(), any, &size) == 0, "a listener without an address");
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(any)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(any)->sin_port);
}

}  // namespace

struct PageServer::Impl {
  std::function<std::string()> page;
  Descriptor listener;
  Descriptor wake{eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};  // readable once it shall end
  int port = 0;
  std::array<std::optional<Connection>, kMostConnections> connections;
  Clock::time_point window_end;
  int accepted = 0;  // in the window
  int rounds = 0;
  std::thread thread;

  void serve();
  bool serve_once();
  [[nodiscard]] bool rest(Clock::time_point now) const;
  [[nodiscard]] int longest_wait(Clock::time_point now, bool accepting) const;
  std::optional<Connection>& place_for_another();
  [[nodiscard]] bool accepts(Clock::time_point now);
  void accept_one(Clock::time_point now);
  void advance(std::optional<Connection>& one) const;
};

/// A free place, else that of the oldest connection.
std::optional<Connection>& PageServer::Impl::place_for_another() {
  return *std::min_element(
      connections.begin(), connections.end(),
      [](const auto& a, const auto& b) { return a && b ? a->since() < b->since() : !a && b; });
}

/// True where one more connection may be accepted now.
bool PageServer::Impl::accepts(Clock::time_point now) {
  const std::optional<Connection>& place = place_for_another();
  return accepted < kMostAccepted && (!place || now >= place->since() + kLeastAge);
}

void PageServer::Impl::accept_one(Clock::time_point now) {
  ++accepted;  // one that fails too: where no descriptor is free this must not spin
  Descriptor socket(accept4(listener.number(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket.number() >= 0) {
    std::optional<Connection>& place = place_for_another();
    place.emplace(std::move(socket), now);
    advance(place);
  }
}

void PageServer::Impl::advance(std::optional<Connection>& one) const {
  try {
    if (one->advance(page)) {
      one.reset();
    }
  } catch (const std::exception&) {  // of the page: memory
    one.reset();
  }
}

/// Milliseconds until a connection's time is over, or until one may be accepted; -1: none is
/// awaited.
int PageServer::Impl::longest_wait(Clock::time_point now, bool accepting) const {
  Clock::time_point until = accepting ? Clock::time_point::max() : now + kWindow / 10;
  for (const std::optional<Connection>& one : connections) {
    until = one ? std::min(until, one->since() + kLifetime) : until;
  }
  if (until == Clock::time_point::max()) {
    return -1;
  }
  const auto wait = std::chrono::ceil<milliseconds>(std::max(until - now, Clock::duration{}));
  return static_cast<int>(wait.count());
}

/// Waits for something to do and does it. Returns whether to go on.
bool PageServer::Impl::serve_once() {
  std::array<pollfd, kMostConnections + 2> waits{};
  const Clock::time_point begin = Clock::now();
  const bool accepting = accepts(begin);
  waits[0] = {.fd = wake.number(), .events = POLLIN, .revents = 0};
  waits[1] = {.fd = accepting ? listener.number() : -1, .events = POLLIN, .revents = 0};
  for (std::size_t i = 0; i < connections.size(); ++i) {
    const std::optional<Connection>& one = connections[i];
    waits[i + 2] = {
        .fd = one ? one->socket() : -1, .events = one ? one->awaited() : short{0}, .revents = 0};
  }
  poll(waits.data(), waits.size(), longest_wait(begin, accepting));
  const Clock::time_point now = Clock::now();
  for (std::size_t i = 0; i < connections.size(); ++i) {
    std::optional<Connection>& one = connections[i];
    if (one && waits[i + 2].revents != 0) {
      advance(one);
    }
    if (one && now >= one->since() + kLifetime) {
      one.reset();
    }
  }
  if (waits[1].revents != 0) {
    accept_one(now);
  }
  return waits[0].revents == 0;
}

/// Waits until the window is over. Returns whether to go on.
bool PageServer::Impl::rest(Clock::time_point now) const {
  pollfd woken{.fd = wake.number(), .events = POLLIN, .revents = 0};
  poll(&woken, 1, static_cast<int>(std::chrono::ceil<milliseconds>(window_end - now).count()));
  return woken.revents == 0;
}

void PageServer::Impl::serve() {
  bool goes_on = true;
  while (goes_on) {
    const Clock::time_point now = Clock::now();
    if (now >= window_end) {
      window_end = now + kWindow;
      accepted = 0;
      rounds = 0;
    }
    goes_on = ++rounds > kMostRounds ? rest(now) : serve_once();
  }
}

PageServer::PageServer(const ListenAddress& address, std::function<std::string()> page)
    : impl_(std::make_unique<Impl>()) {
  impl_->page = std::move(page);
  impl_->listener = listen_at(address);
  impl_->port = port_of(impl_->listener);
  if (impl_->wake.number() < 0) {
    refuse(address, std::strerror(errno));
  }
  impl_->thread = std::thread([impl = impl_.get()] { impl->serve(); });
  pthread_setname_np(impl_->thread.native_handle(), "weft-metrics");
}

PageServer::~PageServer() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(impl_->wake.number(), &one, sizeof(one));
  impl_->thread.join();
}

int PageServer::port() const {
  return impl_->port;
}

}  // namespace weft::cli
