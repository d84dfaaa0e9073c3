// The members of connection, for the sources that instantiate it: the pipeline of commands and their replies.
#pragma once

#include <poll.h>
#include <sys/uio.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "core/text.hpp"
#include "transport/redis/reply_errors.hpp"
#include "transport/redis/server_connection.hpp"

namespace cenote::redis {

namespace wire {

inline constexpr std::size_t buffer_bytes = std::size_t{64} << 10U;
inline constexpr std::size_t most_value_bytes = std::size_t{1} << 30U;  // of a value that is only counted off
inline constexpr std::size_t most_header_line = 32;
inline constexpr std::size_t bytes_a_turn = std::size_t{8} << 20U;  // the other connections have their turn then
inline constexpr std::size_t line_end_bytes = 2;

inline constexpr std::array<std::byte, std::size_t{64} << 10U> zeros{};

inline iovec run_of(const void* data, std::size_t size) noexcept {
  return {.iov_base = const_cast<void*>(data), .iov_len = size};  // NOLINT(cppcoreguidelines-pro-type-const-cast)
}

}  // namespace wire

template <class Request>
server_connection<Request>::server_connection() : buffer_(wire::buffer_bytes) {}

template <class Request>
server_connection<Request>::~server_connection() = default;

template <class Request>
result<void> server_connection<Request>::begin(std::span<const socket_address> addresses, std::size_t first,
                                               std::optional<tls::client_stream> secured) {
  if (auto begun = reader_.begin(); !begun) return begun;
  in_begin_ = in_end_ = sent_of_first_ = 0;
  value_ = {};
  is_broken_ = false;
  return socket_.begin(addresses, first, std::move(secured));
}

template <class Request>
short server_connection<Request>::wanted_events() const noexcept {
  return socket_.wanted_events(is_connected() && !unsent_.empty() && !is_broken_);
}

template <class Request>
result<void> server_connection<Request>::serve(short events, steady_time now, const listener& receiver) {
  if (events == 0) return {};
  if (!is_connected()) {
    const bool was_in_handshake = is_in_handshake();
    if (auto advanced = socket_.advance(); !advanced) return advanced;
    if (!is_connected()) return {};
    if (was_in_handshake) events = static_cast<short>(events | POLLIN);  // TLS may have received more
  }
  if ((events & POLLOUT) != 0) flush(now);
  if ((events & (POLLIN | POLLHUP | POLLERR)) == 0) return {};
  using origin = tls::client_stream::byte_origin;
  for (std::size_t taken = 0;;) {
    const auto got = receive(taken < wire::bytes_a_turn ? origin::socket : origin::buffer);
    if (!got) return std::unexpected(got.error());
    if (*got == 0) break;
    taken += *got;
    if (auto parsed = parse(now, receiver); !parsed) return parsed;
    if (is_drained_) break;
  }
  return {};
}

template <class Request>
void server_connection<Request>::send(Request request) {
  unsent_bytes_ += request.wire_bytes();
  value_bytes_ += request.value_bytes();
  unsent_.push_back(std::move(request));
}

// The next runs of bytes of the commands that were not sent yet. Memory that was given back is zeros.
template <class Request>
std::size_t server_connection<Request>::gather(std::span<iovec> runs) noexcept {
  std::size_t count = 0;
  std::size_t skip = sent_of_first_;
  for (const Request& each : unsent_) {
    const std::size_t body = each.has_body ? each.size : 0;
    if (count + 3 > runs.size()) break;
    if (skip < each.head.size()) runs[count++] = wire::run_of(each.head.data() + skip, each.head.size() - skip);
    skip -= std::min(skip, each.head.size());
    if (skip < body) {
      if (each.memory.empty()) {
        const std::size_t filler = std::min(body - skip, wire::zeros.size());
        runs[count++] = wire::run_of(wire::zeros.data(), filler);
        if (filler < body - skip) return count;
      } else {
        runs[count++] = wire::run_of(each.memory.data() + skip, body - skip);
      }
    }
    skip -= std::min(skip, body);
    if (skip < each.tail.size()) runs[count++] = wire::run_of(each.tail.data() + skip, each.tail.size() - skip);
    skip = 0;
  }
  return count;
}

template <class Request>
void server_connection<Request>::flush(steady_time now) {
  constexpr std::size_t most_runs = 256;
  std::array<iovec, most_runs> runs;
  if (!is_connected() || is_broken_) return;
  is_broken_ = !socket_.flush();
  for (std::size_t sent = 0; !is_broken_ && !unsent_.empty() && sent < wire::bytes_a_turn;) {
    const auto some = socket_.send(std::span(runs).first(gather(runs)));
    is_broken_ = !some;
    if (!some || *some == 0) return;
    sent += *some;
    advance(*some, now);
  }
}

template <class Request>
void server_connection<Request>::advance(std::size_t bytes, steady_time now) {
  unsent_bytes_ -= bytes;
  sent_of_first_ += bytes;
  while (!unsent_.empty() && sent_of_first_ >= unsent_.front().wire_bytes()) {
    Request& first = unsent_.front();
    sent_of_first_ -= first.wire_bytes();
    first.sent = now;
    waiting_.push_back(std::move(first));
    unsent_.pop_front();
    waiting_.back().head = {};
  }
  if (!unsent_.empty() && sent_of_first_ > 0) unsent_.front().sent = now;
}

template <class Request>
std::string_view server_connection<Request>::buffered() const noexcept {
  return {reinterpret_cast<const char*>(buffer_.data()) + in_begin_, in_end_ - in_begin_};
}

/// Where the next bytes of the value belong, when that is a block and nothing is buffered.
template <class Request>
std::span<std::byte> server_connection<Request>::direct_run() noexcept {
  if (!value_.is_open || value_.is_odd || in_begin_ != in_end_ || value_.arrived < Request::header_bytes) return {};
  if (value_.arrived >= value_.size || waiting_.front().memory.empty()) return {};
  return waiting_.front().memory.subspan(value_.arrived - Request::header_bytes);
}

/// Bytes that came; 0: none for now.
template <class Request>
result<std::size_t> server_connection<Request>::receive(tls::client_stream::byte_origin origin) {
  if (in_begin_ == in_end_) in_begin_ = in_end_ = 0;
  if (in_end_ == buffer_.size()) {
    std::memmove(buffer_.data(), buffer_.data() + in_begin_, in_end_ - in_begin_);
    in_end_ -= in_begin_;
    in_begin_ = 0;
  }
  if (in_end_ == buffer_.size()) return not_the_protocol("a line that does not end");
  const auto direct = direct_run();
  const std::array runs{iovec{direct.data(), direct.size()}, iovec{buffer_.data() + in_end_, buffer_.size() - in_end_}};
  const std::size_t first = direct.empty() ? 1 : 0;
  const auto received = socket_.receive(std::span(runs).subspan(first), origin);
  if (!received) return std::unexpected(received.error());
  const std::size_t got = received->bytes;
  is_drained_ = received->is_last;
  const std::size_t placed = std::min(got, direct.size());
  value_.arrived += placed;
  in_end_ += got - placed;
  return got;
}

template <class Request>
result<void> server_connection<Request>::parse(steady_time now, const listener& receiver) {
  while (true) {
    if (value_.is_open) {
      const std::size_t whole = value_.size + wire::line_end_bytes;
      const std::size_t some = std::min(in_end_ - in_begin_, whole - value_.arrived);
      if (auto taken = take_value(std::span(buffer_).subspan(in_begin_, some)); !taken) return taken;
      in_begin_ += some;
      if (value_.arrived < whole) return {};
      end_value(now, receiver);
      continue;
    }
    if (in_begin_ == in_end_) return {};
    if (waiting_.empty() && sent_of_first_ > 0 && buffered().front() == '-') return refused_early();
    if (waiting_.empty())
      return not_the_protocol("\"" + printable(cut_text(buffered(), 100)) + "\", which nobody asked for");
    const bool is_value = waiting_.front().awaits_value() && reader_.pending_bytes() == 0 && buffered().front() == '$';
    const auto went_on = is_value ? begin_value(now, receiver) : take_line(now, receiver);
    if (!went_on) return std::unexpected(went_on.error());
    if (!*went_on) return {};
  }
}

/// The error of a server that refuses a command before it has read all of it, and closes.
template <class Request>
std::unexpected<error> server_connection<Request>::refused_early() const {
  const auto text = buffered().substr(1, buffered().find_first_of("\r\n") - 1);
  const bool is_size = meaning_of(text) == reply_failure::too_big;
  return fail(is_size ? error_code::limit_exceeded : error_code::malformed, explained(text));
}

/// The line before a value. False: more of it must come first.
template <class Request>
result<bool> server_connection<Request>::begin_value(steady_time now, const listener& receiver) {
  const auto text = buffered();
  const auto end = text.substr(0, wire::most_header_line).find("\r\n");
  if (end == std::string_view::npos) {
    if (text.size() >= wire::most_header_line) return not_the_protocol("the size of a value does not end");
    return false;
  }
  long long size = 0;
  const auto [last, code] = std::from_chars(text.data() + 1, text.data() + end, size);
  if (code != std::errc() || last != text.data() + end || size < -1 ||
      size > static_cast<long long>(wire::most_value_bytes)) {
    return not_the_protocol("a value of \"" + printable(text.substr(1, end - 1)) + "\" bytes");
  }
  in_begin_ += end + wire::line_end_bytes;
  if (size < 0) {
    tell(now, receiver, {});
    return true;
  }
  value_.is_open = true;
  value_.size = static_cast<std::size_t>(size);
  value_.is_odd = value_.size != waiting_.front().size + Request::header_bytes;
  value_.arrived = 0;
  // Reported before it has come: it may be so large that it never does.
  if (value_.is_odd) tell(now, receiver, {.kind = server_reply::type::odd_value});
  return true;
}

template <class Request>
result<void> server_connection<Request>::take_value(std::span<const std::byte> bytes) {
  const auto memory = value_.is_odd ? std::span<std::byte>() : waiting_.front().memory;
  while (!bytes.empty()) {
    const std::size_t at = value_.arrived;
    std::size_t some = bytes.size();
    if (at >= value_.size) {
      const char expected = at == value_.size ? '\r' : '\n';
      if (static_cast<char>(bytes.front()) != expected) return not_the_protocol("a value does not end where it says");
      some = 1;
    } else if (value_.is_odd) {
      some = std::min(some, value_.size - at);
    } else if (at < Request::header_bytes) {
      some = std::min(some, Request::header_bytes - at);
      std::memcpy(value_.header.data() + at, bytes.data(), some);
    } else {
      some = std::min(some, value_.size - at);
      if (!memory.empty()) std::memcpy(memory.data() + (at - Request::header_bytes), bytes.data(), some);
    }
    value_.arrived += some;
    bytes = bytes.subspan(some);
  }
  return {};
}

template <class Request>
void server_connection<Request>::end_value(steady_time now, const listener& receiver) {
  value_.is_open = false;
  if (!value_.is_odd) tell(now, receiver, {.kind = server_reply::type::value, .header = value_.header});
}

/// Feeds the reader one line, or what is there of a string: a reply ends with one of them, so it never takes bytes of
/// the next. False: no whole line is there.
template <class Request>
result<bool> server_connection<Request>::take_line(steady_time now, const listener& receiver) {
  const auto text = buffered();
  constexpr std::string_view marks = Request::takes_lists ? "+-:$*" : "+-:$";
  if (reader_.pending_bytes() == 0 && marks.find(text.front()) == std::string_view::npos) {
    return not_the_protocol("\"" + printable(cut_text(text, 100)) + "\"");
  }
  std::size_t some = std::min(text.size(), reader_.string_bytes());
  if (some == 0) {
    const auto end = text.find('\n');
    if (end == std::string_view::npos) return false;
    some = end + 1;
  }
  const std::size_t most = waiting_.front().most_reply_bytes;
  if (reader_.pending_bytes() + some > most) {
    return not_the_protocol("a reply of more than " + std::to_string(most) + " bytes");
  }
  const auto taken = reader_.take(text.substr(0, some));
  if (!taken) return std::unexpected(taken.error());
  in_begin_ += some;
  if (*taken) tell(now, receiver, reader_.reply());
  return true;
}

template <class Request>
void server_connection<Request>::tell(steady_time now, const listener& receiver, const server_reply& reply) {
  Request request = std::move(waiting_.front());
  waiting_.pop_front();
  value_bytes_ -= request.value_bytes();
  last_reply_ = now;
  receiver(request, reply);
}

template <class Request>
std::deque<Request> server_connection<Request>::close() {
  socket_.close();
  unsent_bytes_ = value_bytes_ = sent_of_first_ = 0;
  std::deque<Request> open = std::exchange(waiting_, {});
  for (Request& each : unsent_) open.push_back(std::move(each));
  unsent_.clear();
  return open;
}

template <class Request>
steady_time server_connection<Request>::expire(steady_time now, const std::function<void(Request&)>& receiver) {
  auto next = steady_time::max();
  for (Request& each : waiting_) {
    if (each.is_answered) continue;
    if (each.deadline > now) {
      next = std::min(next, each.deadline);
      continue;
    }
    receiver(each);
    each.abandon();
  }
  std::deque<Request> kept;
  for (std::size_t i = 0; i < unsent_.size(); ++i) {
    Request& each = unsent_[i];
    const bool is_begun = i == 0 && sent_of_first_ > 0;
    if (each.is_answered || each.deadline > now) {
      if (!each.is_answered) next = std::min(next, each.deadline);
    } else {
      receiver(each);
      if (!is_begun) {
        unsent_bytes_ -= each.wire_bytes();
        value_bytes_ -= each.value_bytes();
        continue;
      }
      each.has_run_over = each.has_body;
      each.abandon();
    }
    kept.push_back(std::move(each));
  }
  unsent_ = std::move(kept);
  return next;
}

template <class Request>
void server_connection<Request>::visit(const std::function<void(Request&)>& visitor) {
  std::ranges::for_each(waiting_, visitor);
  std::ranges::for_each(unsent_, visitor);
}

}  // namespace cenote::redis
