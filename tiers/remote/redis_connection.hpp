// The bytes of one connection to a Redis server: commands out in a pipeline, replies in, in their order.
#pragma once

#include <hiredis/read.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/unique_fd.hpp"
#include "tiers/remote/redis_request.hpp"
#include "tiers/remote/resolver.hpp"
#include "tiers/remote/value.hpp"

namespace cenote::remote {

/// A reply, valid while it is told.
struct redis_reply {
  enum class type : std::uint8_t { nil, integer, text, failure, value, odd_value };
  type what = type::nil;
  long long number = 0;                 ///< integer
  std::string_view text{};              ///< status, string, or what an error says
  std::span<const std::byte> header{};  ///< value: the bytes are in the request's memory
};

/// Not thread-safe; everything is called from the thread that polls.
///
/// hiredis parses the replies; the socket is ours, because hiredis 0.14's own asynchronous connection copies what it
/// sends twice and moves the rest after every write, reads 16 KiB at a time, asserts when a server says something that
/// nobody asked for, and may raise SIGPIPE. So a value that is put goes from the block into the socket (no copy in user
/// space), and one that is got from the socket into the block (none either: only what came together with the reply
/// before it, at most 64 KiB, is copied once).
class redis_connection {
 public:
  /// Each request comes back once, in the order of send(), with its reply.
  using listener = std::function<void(redis_request&, const redis_reply&)>;

  redis_connection();
  redis_connection(const redis_connection&) = delete;
  redis_connection& operator=(const redis_connection&) = delete;
  ~redis_connection();

  /// Begins to connect to the first of `addresses`, from the `first` on and around, that does not refuse at once.
  [[nodiscard]] result<void> begin(std::span<const socket_address> addresses, std::size_t first);
  /// Errors: what connecting, sending or receiving met; the connection is of no more use then. `told` must not close
  /// it.
  [[nodiscard]] result<void> serve(short events, steady_time now, const listener& told);
  /// Appends a command.
  void send(redis_request request);
  /// Writes what the socket takes. An error shows when the socket is polled next, after what the server said before.
  void flush(steady_time now);

  /// Closes the socket and gives back what was not answered yet.
  [[nodiscard]] std::deque<redis_request> close();

  [[nodiscard]] int descriptor() const noexcept { return socket_.get(); }
  [[nodiscard]] short wanted_events() const noexcept;
  [[nodiscard]] bool is_connected() const noexcept { return is_connected_; }
  [[nodiscard]] bool is_idle() const noexcept { return unsent_.empty() && waiting_.empty(); }
  [[nodiscard]] std::size_t unsent_bytes() const noexcept { return unsent_bytes_; }
  /// Of blocks that were asked for or sent, and not answered.
  [[nodiscard]] std::size_t value_bytes() const noexcept { return value_bytes_; }
  [[nodiscard]] steady_time last_reply() const noexcept { return last_reply_; }
  /// When the command whose reply is the next was sent.
  [[nodiscard]] const redis_request* oldest() const noexcept {
    return !waiting_.empty() ? &waiting_.front() : !unsent_.empty() ? &unsent_.front() : nullptr;
  }
  /// Takes the requests whose deadline has passed: `told` answers them. What was sent of them is abandoned, what was
  /// not is not sent any more. Gives the next deadline.
  steady_time expire(steady_time now, const std::function<void(redis_request&)>& told);
  /// Visits the requests without a reply; abandoned ones are among them.
  void visit(const std::function<void(redis_request&)>& visitor);

 private:
  struct free_reader {
    void operator()(redisReader* reader) const noexcept { redisReaderFree(reader); }
  };
  struct incoming {
    bool is_open = false;
    bool is_odd = false;   ///< of another size than the block's: told already, and only counted off
    std::size_t size = 0;  ///< of the value
    std::size_t got = 0;   ///< of it and the line's end behind it
    value_header header{};
  };

  [[nodiscard]] result<void> finish_connect();
  [[nodiscard]] std::size_t gather(std::span<struct iovec> runs) noexcept;
  void advance(std::size_t bytes, steady_time now);
  [[nodiscard]] result<std::size_t> receive();
  [[nodiscard]] result<void> parse(steady_time now, const listener& told);
  [[nodiscard]] std::unexpected<error> refused_early() const;
  [[nodiscard]] result<bool> begin_value(steady_time now, const listener& told);
  [[nodiscard]] result<void> take_value(std::span<const std::byte> bytes);
  void end_value(steady_time now, const listener& told);
  [[nodiscard]] result<bool> take_line(steady_time now, const listener& told);
  void tell(steady_time now, const listener& told, const redis_reply& reply);
  [[nodiscard]] std::span<std::byte> direct_run() noexcept;
  [[nodiscard]] std::string_view buffered() const noexcept;

  unique_fd socket_;
  bool is_connected_ = false;
  std::unique_ptr<redisReader, free_reader> reader_;
  std::size_t fed_ = 0;  ///< bytes of the reply that the reader has begun
  std::deque<redis_request> unsent_;
  std::size_t sent_of_first_ = 0;
  std::size_t unsent_bytes_ = 0;
  std::size_t value_bytes_ = 0;
  std::deque<redis_request> waiting_;
  std::vector<std::byte> in_;
  std::size_t in_begin_ = 0;
  std::size_t in_end_ = 0;
  bool is_drained_ = false;  ///< nothing more is there to be received for now
  bool is_broken_ = false;   ///< nothing more can be sent
  incoming value_;
  steady_time last_reply_{};
};

}  // namespace cenote::remote
