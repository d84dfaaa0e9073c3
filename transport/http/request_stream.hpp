// From the bytes of a connection to whole requests.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/http/request_handler.hpp"

namespace cenote::http {

/// Bytes that all connections together may take for requests beyond their first buffers. Thread-safe.
class buffer_budget {
 public:
  explicit buffer_budget(std::size_t limit) noexcept : limit_(limit) {}

  [[nodiscard]] bool take(std::size_t bytes) noexcept {
    if (used_.fetch_add(bytes, std::memory_order_relaxed) + bytes <= limit_) return true;
    give_back(bytes);
    return false;
  }
  void give_back(std::size_t bytes) noexcept { used_.fetch_sub(bytes, std::memory_order_relaxed); }
  [[nodiscard]] std::size_t used() const noexcept { return used_.load(std::memory_order_relaxed); }

 private:
  const std::size_t limit_;
  std::atomic<std::size_t> used_ = 0;
};

struct request_limits {
  std::size_t header = std::size_t{16} << 10U;  ///< bytes of the request line and all fields
  std::size_t body = std::size_t{16} << 20U;    ///< bytes
  std::size_t fields = 100;                     ///< header fields
};

enum class stream_state : std::uint8_t {
  incomplete,  ///< it takes more bytes
  header,      ///< the header is whole, the body is not: shown once for a request
  complete,    ///< request() is whole
  refused,     ///< refusal() is the answer, and nothing behind it can be read
};

/// The status and text of a request that cannot be answered otherwise.
struct request_refusal {
  int status = 0;
  std::string text;
};

/// Reads the requests of one connection, one after another, in a buffer that it reuses: a body is not copied but where
/// it comes in chunks. Once the buffer is as large as the requests, nothing is allocated. Not thread-safe.
class request_stream {
 public:
  /// `budget` outlives it.
  request_stream(const request_limits& limits, buffer_budget& budget);
  request_stream(const request_stream&) = delete;
  request_stream& operator=(const request_stream&) = delete;
  ~request_stream();

  /// The place for the next bytes, at least one; empty if the budget has no more. It ends the validity of request().
  [[nodiscard]] std::span<std::byte> room();
  /// So many bytes were written into room().
  void add(std::size_t bytes) noexcept { end_ += bytes; }
  /// Reads on in what is there.
  [[nodiscard]] stream_state advance();
  /// Drops the request; the bytes behind it are the begin of the next.
  void finish();

  /// Whether there are bytes that belong to no request that was finished.
  [[nodiscard]] bool has_bytes() const noexcept { return end_ > start_; }
  [[nodiscard]] const http_request& request() const noexcept { return request_; }
  [[nodiscard]] const request_refusal& refusal() const noexcept { return refusal_; }

  // Of a request whose header is whole.
  [[nodiscard]] bool keeps_alive() const noexcept;
  [[nodiscard]] bool is_head() const noexcept { return is_head_; }
  [[nodiscard]] bool is_old_version() const noexcept { return version_ < 11; }  ///< HTTP/1.0
  [[nodiscard]] bool awaits_continue() const noexcept { return awaits_continue_; }
  [[nodiscard]] std::string_view path() const noexcept;
  /// The value of the first field of this name; empty without one.
  [[nodiscard]] std::string_view header(std::string_view name) const noexcept;

 private:
  class parser;
  /// A part of the buffer, by its distance from the request's begin.
  struct text_place {
    std::uint32_t offset = 0;
    std::uint32_t size = 0;
  };
  struct field_place {
    text_place name;
    text_place value;
  };

  void begin();
  [[nodiscard]] stream_state refuse(int status, std::string text);
  [[nodiscard]] stream_state advance_once(bool& is_over);
  [[nodiscard]] stream_state finish_header();
  [[nodiscard]] bool check_fields();
  void show_request();
  [[nodiscard]] std::string_view origin_target() const noexcept;
  [[nodiscard]] bool reserve(std::size_t capacity);
  void close_gap() noexcept;
  void move_to_front() noexcept;
  [[nodiscard]] text_place place_of(std::string_view text) const noexcept;
  [[nodiscard]] std::string_view text_at(text_place place) const noexcept;

  const request_limits limits_;
  buffer_budget& budget_;
  std::unique_ptr<char[]> memory_;
  std::size_t capacity_ = 0;  ///< without the padding
  std::size_t start_ = 0;     ///< where the request begins
  std::size_t parsed_ = 0;    ///< bytes behind this wait for the parser
  std::size_t end_ = 0;       ///< bytes behind this are free
  std::size_t body_begin_ = 0;
  std::size_t body_size_ = 0;
  std::unique_ptr<parser> parser_;
  text_place method_;
  text_place target_;
  std::vector<field_place> places_;
  std::vector<http_field> fields_;
  http_request request_;
  request_refusal refusal_;
  int version_ = 11;
  bool is_begun_ = false;
  bool is_header_shown_ = false;
  bool is_head_ = false;
  bool awaits_continue_ = false;
};

}  // namespace cenote::http
