// Requests of a service and their answers, and the object that answers them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

namespace cenote::http {

/// A header field of a request.
struct http_field {
  std::string_view name;
  std::string_view value;
};

/// The event for which an answer waits. A handler that needs another thread puts one into its reply and returns; once
/// it fires, handle() is called again on the connection's thread, with the same request and this event. What the other
/// thread has written before is seen there. Thread-safe.
class reply_event {
 public:
  reply_event() = default;
  reply_event(const reply_event&) = delete;
  reply_event& operator=(const reply_event&) = delete;
  virtual ~reply_event() = default;

  /// Only the first call counts. It may come before the reply is returned.
  void fire() noexcept;

  /// Called by the server: `wake` is called once, here if the event fired before, and not after disarm().
  void arm(std::function<void()> wake);
  void disarm() noexcept;

 private:
  std::mutex mutex_;
  std::function<void()> wake_;
  bool has_fired_ = false;
};

/// A whole request. Valid while it is handled.
struct http_request {
  /// Bytes behind the body that may be read, whatever stands there: parsers of JSON want them.
  static constexpr std::size_t body_padding = 64;

  std::string_view method;  ///< "POST"; HEAD comes as "GET", and the answer's body is left out
  std::string_view path;    ///< as it was sent: percent-encoded, without the query
  std::string_view query;   ///< behind the '?'
  std::string_view content_type;
  std::span<const std::byte> body;  ///< body_padding bytes more may be read
  std::span<const http_field> fields;
  std::string_view peer_address;      ///< of the client, without its port; empty over a Unix socket
  std::string_view certificate_name;  ///< the common name of its certificate, which was checked; empty without one
  reply_event* event = nullptr;       ///< that of the reply before, which has fired

  /// The value of the first field of this name, in any case; empty without one.
  [[nodiscard]] std::string_view header(std::string_view name) const noexcept;
  /// Whether the content has this type, "application/json"; parameters behind it do not matter.
  [[nodiscard]] bool has_type(std::string_view type) const noexcept;
};

/// The rest of an answer that is too large to be made at once.
class reply_source {
 public:
  reply_source() = default;
  reply_source(const reply_source&) = delete;
  reply_source& operator=(const reply_source&) = delete;
  virtual ~reply_source() = default;

  /// Appends the next part to `out`, or nothing if it is not there yet; true while there is more. It is called on the
  /// connection's thread when the part before was sent. An exception ends the connection, so that the client sees a cut
  /// answer.
  virtual bool next(std::string& out) = 0;
};

/// An answer. One is reused for all requests of a thread.
struct http_reply {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::string allow;                   ///< value of the header Allow, with 405
  std::string challenge = "Bearer";    ///< value of the header WWW-Authenticate, with 401
  std::uint32_t retry_after = 0;       ///< seconds, of the header of that name; 0: without it
  std::unique_ptr<reply_source> rest;  ///< what follows `body`, if anything does
  std::shared_ptr<reply_event> event;  ///< there is no answer yet: the request is to be handled again when it fires

  /// As new, with the memory that it has.
  void clear();
  /// The answer is `{"error": text}`.
  void fail(int error_status, std::string_view text);
  /// 405: this path knows these methods, "GET, HEAD".
  void refuse_method(std::string_view methods);
};

/// Answers the requests of one thread.
class request_handler {
 public:
  request_handler() = default;
  request_handler(const request_handler&) = delete;
  request_handler& operator=(const request_handler&) = delete;
  virtual ~request_handler() = default;

  /// Fills `reply`, which is as new. It must not block: other connections wait meanwhile. An exception becomes 500.
  virtual void handle(const http_request& request, http_reply& reply) = 0;
};

/// Whether two texts of ASCII are equal but for the case of letters.
[[nodiscard]] bool is_same_name(std::string_view one, std::string_view two) noexcept;

/// "Not Found" of 404.
[[nodiscard]] std::string_view status_text(int status) noexcept;

}  // namespace cenote::http
