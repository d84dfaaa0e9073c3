// Messages of ZeroMQ as they are received: a few parts, whose bytes are not copied.
#pragma once

#include <zmq.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

namespace cenote::zmq {

/// Owns one frame. Moving it moves the bytes of small frames, so views end with a move. Not thread-safe.
class message_part {
 public:
  message_part() noexcept { ::zmq_msg_init(&message_); }
  message_part(message_part&& other) noexcept;
  message_part& operator=(message_part&& other) noexcept;
  message_part(const message_part&) = delete;
  message_part& operator=(const message_part&) = delete;
  ~message_part() { ::zmq_msg_close(&message_); }

  /// Frees the bytes.
  void clear() noexcept;
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept;
  [[nodiscard]] std::string_view text() const noexcept;
  [[nodiscard]] std::size_t size() const noexcept { return ::zmq_msg_size(&message_); }
  /// The descriptor of the connection by which it came; a closed one's number may be used again. None: not known.
  [[nodiscard]] std::optional<int> connection() const noexcept;
  /// For calls of the library.
  [[nodiscard]] zmq_msg_t* get() noexcept { return &message_; }

 private:
  zmq_msg_t message_{};
};

/// Bytes and what keeps them.
struct shared_part {
  std::span<const std::byte> bytes{};
  std::shared_ptr<const void> owner{};
};

/// Parts of up to this size are copied when they are shared: the library keeps small ones in its receive buffers of
/// 8 KiB, and a few bytes that wait would hold the whole.
inline constexpr std::size_t copied_part_bytes = 8192;

/// The part's bytes with an owner; thread-safe from then on.
[[nodiscard]] shared_part share(message_part&& part);

/// All parts of one message, at most `longest`; used again for the next one. Not thread-safe.
class multipart_message {
 public:
  static constexpr std::size_t longest = 8;

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] message_part& part(std::size_t place) { return parts_.at(place); }
  [[nodiscard]] const message_part& part(std::size_t place) const { return parts_.at(place); }
  /// It had more parts, which are dropped.
  [[nodiscard]] bool is_cut() const noexcept { return is_cut_; }

  void clear() noexcept;
  /// The part to be filled next; what came above `longest` all goes into one that nothing reads.
  [[nodiscard]] message_part& append() noexcept;

 private:
  std::array<message_part, longest + 1> parts_{};
  std::size_t size_ = 0;
  bool is_cut_ = false;
};

}  // namespace cenote::zmq
