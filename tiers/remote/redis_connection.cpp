// A non-blocking socket, the pipeline of commands, and the replies by hiredis's reader.
#include "tiers/remote/redis_connection.hpp"

#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include "core/text.hpp"
#include "tiers/remote/redis_errors.hpp"

namespace cenote::remote {

namespace {

constexpr std::size_t buffer_bytes = std::size_t{64} << 10U;
constexpr std::size_t most_reply_bytes = std::size_t{64} << 10U;  // of any reply but a value
constexpr std::size_t most_value_bytes = std::size_t{1} << 30U;   // of a value that is only counted off
constexpr std::size_t most_header_line = 32;
constexpr std::size_t bytes_a_turn = std::size_t{8} << 20U;  // the other connections have their turn then
constexpr std::size_t line_end_bytes = 2;

constexpr std::array<std::byte, std::size_t{64} << 10U> zeros{};

struct free_reply {
  void operator()(redisReply* reply) const noexcept { freeReplyObject(reply); }
};

std::unexpected<error> nonsense(std::string_view what) {
  return fail(error_code::malformed, "not the protocol of Redis: " + std::string(what));
}

std::size_t value_of(const redis_request& request) noexcept {
  return request.kind == request_kind::get || request.kind == request_kind::put ? request.size : 0;
}

iovec run_of(const void* data, std::size_t size) noexcept {
  return {.iov_base = const_cast<void*>(data), .iov_len = size};  // NOLINT(cppcoreguidelines-pro-type-const-cast)
}

}  // namespace

std::string wire_command(std::initializer_list<std::string_view> arguments) {
  std::string text = "*" + std::to_string(arguments.size()) + "\r\n";
  for (const std::string_view each : arguments) {
    text += "$" + std::to_string(each.size()) + "\r\n";
    text += each;
    text += "\r\n";
  }
  return text;
}

redis_connection::redis_connection() : in_(buffer_bytes) {}
redis_connection::~redis_connection() = default;

result<void> redis_connection::begin(std::span<const socket_address> addresses, std::size_t first) {
  reader_.reset(redisReaderCreate());
  if (!reader_) return fail(error_code::system, "no memory for a reader of replies");
  reader_->maxbuf = 0;  // what is read line by line must not free and allocate at each line
  fed_ = in_begin_ = in_end_ = sent_of_first_ = 0;
  value_ = {};
  is_connected_ = is_broken_ = false;
  int failed = EADDRNOTAVAIL;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const socket_address& to = addresses[(first + i) % addresses.size()];
    const int family = to.bytes.ss_family;
    unique_fd opened(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!opened) return fail_errno("socket");
    if (family != AF_UNIX) {
      const int on = 1;
      (void)::setsockopt(opened.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      (void)::setsockopt(opened.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    }
    if (::connect(opened.get(), reinterpret_cast<const sockaddr*>(&to.bytes), to.size) == 0 || errno == EINPROGRESS) {
      socket_ = std::move(opened);
      return {};
    }
    failed = errno;
  }
  return fail_errno(failed, "connect", "");
}

result<void> redis_connection::finish_connect() {
  int failed = 0;
  socklen_t size = sizeof(failed);
  if (::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &failed, &size) != 0) return fail_errno("getsockopt");
  if (failed != 0) return fail_errno(failed, "connect", "");
  is_connected_ = true;
  return {};
}

short redis_connection::wanted_events() const noexcept {
  const int events = !is_connected_ ? POLLOUT : unsent_.empty() || is_broken_ ? POLLIN : POLLIN | POLLOUT;
  return static_cast<short>(events);
}

result<void> redis_connection::serve(short events, steady_time now, const listener& told) {
  if (events == 0) return {};
  if (!is_connected_) {
    if (auto connected = finish_connect(); !connected) return connected;
  }
  if ((events & POLLOUT) != 0) flush(now);
  if ((events & (POLLIN | POLLHUP | POLLERR)) == 0) return {};
  for (std::size_t taken = 0; taken < bytes_a_turn;) {
    const auto got = receive();
    if (!got) return std::unexpected(got.error());
    if (*got == 0) break;
    taken += *got;
    if (auto parsed = parse(now, told); !parsed) return parsed;
    if (is_drained_) break;
  }
  return {};
}

void redis_connection::send(redis_request request) {
  unsent_bytes_ += request.wire_bytes();
  value_bytes_ += value_of(request);
  unsent_.push_back(std::move(request));
}

// The next runs of bytes of the commands that were not sent yet. Memory that was given back is zeros.
std::size_t redis_connection::gather(std::span<iovec> runs) noexcept {
  std::size_t count = 0;
  std::size_t skip = sent_of_first_;
  for (const redis_request& each : unsent_) {
    const std::size_t body = each.has_body ? each.size : 0;
    if (count + 3 > runs.size()) break;
    if (skip < each.head.size()) runs[count++] = run_of(each.head.data() + skip, each.head.size() - skip);
    skip -= std::min(skip, each.head.size());
    if (skip < body) {
      if (each.memory.empty()) {
        const std::size_t filler = std::min(body - skip, zeros.size());
        runs[count++] = run_of(zeros.data(), filler);
        if (filler < body - skip) return count;
      } else {
        runs[count++] = run_of(each.memory.data() + skip, body - skip);
      }
    }
    skip -= std::min(skip, body);
    if (skip < each.tail.size()) runs[count++] = run_of(each.tail.data() + skip, each.tail.size() - skip);
    skip = 0;
  }
  return count;
}

void redis_connection::flush(steady_time now) {
  constexpr std::size_t most_runs = 256;
  std::array<iovec, most_runs> runs;
  for (std::size_t sent = 0; is_connected_ && !is_broken_ && !unsent_.empty() && sent < bytes_a_turn;) {
    msghdr message{};
    message.msg_iov = runs.data();
    message.msg_iovlen = gather(runs);
    const ssize_t n = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      is_broken_ = errno != EAGAIN && errno != EWOULDBLOCK;
      return;
    }
    sent += static_cast<std::size_t>(n);
    advance(static_cast<std::size_t>(n), now);
  }
}

void redis_connection::advance(std::size_t bytes, steady_time now) {
  unsent_bytes_ -= bytes;
  sent_of_first_ += bytes;
  while (!unsent_.empty() && sent_of_first_ >= unsent_.front().wire_bytes()) {
    redis_request& first = unsent_.front();
    sent_of_first_ -= first.wire_bytes();
    first.sent = now;
    waiting_.push_back(std::move(first));
    unsent_.pop_front();
    waiting_.back().head = {};
  }
  if (!unsent_.empty() && sent_of_first_ > 0) unsent_.front().sent = now;
}

std::string_view redis_connection::buffered() const noexcept {
  return {reinterpret_cast<const char*>(in_.data()) + in_begin_, in_end_ - in_begin_};
}

/// Where the next bytes of the value belong, when that is a block and nothing is buffered.
std::span<std::byte> redis_connection::direct_run() noexcept {
  if (!value_.is_open || value_.is_odd || in_begin_ != in_end_ || value_.got < value_header_bytes) return {};
  if (value_.got >= value_.size || waiting_.front().memory.empty()) return {};
  return waiting_.front().memory.subspan(value_.got - value_header_bytes);
}

/// Bytes that came; 0: none for now.
result<std::size_t> redis_connection::receive() {
  if (in_begin_ == in_end_) in_begin_ = in_end_ = 0;
  if (in_end_ == in_.size()) {
    std::memmove(in_.data(), in_.data() + in_begin_, in_end_ - in_begin_);
    in_end_ -= in_begin_;
    in_begin_ = 0;
  }
  if (in_end_ == in_.size()) return nonsense("a line that does not end");
  const auto direct = direct_run();
  const std::array runs{iovec{direct.data(), direct.size()}, iovec{in_.data() + in_end_, in_.size() - in_end_}};
  const std::size_t first = direct.empty() ? 1 : 0;
  ssize_t n = 0;
  do {
    n = ::readv(socket_.get(), runs.data() + first, static_cast<int>(runs.size() - first));
  } while (n < 0 && errno == EINTR);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return 0;
  if (n < 0) return fail_errno("receive");
  if (n == 0) return fail(error_code::system, "the server closed the connection");
  const auto got = static_cast<std::size_t>(n);
  is_drained_ = got < direct.size() + runs.back().iov_len;
  const std::size_t placed = std::min(got, direct.size());
  value_.got += placed;
  in_end_ += got - placed;
  return got;
}

result<void> redis_connection::parse(steady_time now, const listener& told) {
  while (true) {
    if (value_.is_open) {
      const std::size_t whole = value_.size + line_end_bytes;
      const std::size_t some = std::min(in_end_ - in_begin_, whole - value_.got);
      if (auto taken = take_value(std::span(in_).subspan(in_begin_, some)); !taken) return taken;
      in_begin_ += some;
      if (value_.got < whole) return {};
      end_value(now, told);
      continue;
    }
    if (in_begin_ == in_end_) return {};
    if (waiting_.empty() && sent_of_first_ > 0 && buffered().front() == '-') return refused_early();
    if (waiting_.empty()) return nonsense("\"" + printable(cut_text(buffered(), 100)) + "\", which nobody asked for");
    const bool is_value = waiting_.front().kind == request_kind::get && fed_ == 0 && buffered().front() == '$';
    const auto went_on = is_value ? begin_value(now, told) : take_line(now, told);
    if (!went_on) return std::unexpected(went_on.error());
    if (!*went_on) return {};
  }
}

/// What a server says before it has read a whole command, and closes.
std::unexpected<error> redis_connection::refused_early() const {
  const auto text = buffered().substr(1, buffered().find_first_of("\r\n") - 1);
  const bool is_size = meaning_of(text) == redis_failure::too_big;
  return fail(is_size ? error_code::limit_exceeded : error_code::malformed, explained(text));
}

/// The line before a value. False: more of it must come first.
result<bool> redis_connection::begin_value(steady_time now, const listener& told) {
  const auto text = buffered();
  const auto end = text.substr(0, most_header_line).find("\r\n");
  if (end == std::string_view::npos) {
    if (text.size() >= most_header_line) return nonsense("the size of a value does not end");
    return false;
  }
  long long size = 0;
  const auto [last, code] = std::from_chars(text.data() + 1, text.data() + end, size);
  if (code != std::errc() || last != text.data() + end || size < -1 ||
      size > static_cast<long long>(most_value_bytes)) {
    return nonsense("a value of \"" + printable(text.substr(1, end - 1)) + "\" bytes");
  }
  in_begin_ += end + line_end_bytes;
  if (size < 0) {
    tell(now, told, {});
    return true;
  }
  value_.is_open = true;
  value_.size = static_cast<std::size_t>(size);
  value_.is_odd = value_.size != waiting_.front().size + value_header_bytes;
  value_.got = 0;
  // Said before it has come: it may be so large that it never does.
  if (value_.is_odd) tell(now, told, {.what = redis_reply::type::odd_value});
  return true;
}

result<void> redis_connection::take_value(std::span<const std::byte> bytes) {
  const auto memory = value_.is_odd ? std::span<std::byte>() : waiting_.front().memory;
  while (!bytes.empty()) {
    const std::size_t at = value_.got;
    std::size_t some = bytes.size();
    if (at >= value_.size) {
      const char expected = at == value_.size ? '\r' : '\n';
      if (static_cast<char>(bytes.front()) != expected) return nonsense("a value does not end where it says");
      some = 1;
    } else if (value_.is_odd) {
      some = std::min(some, value_.size - at);
    } else if (at < value_header_bytes) {
      some = std::min(some, value_header_bytes - at);
      std::memcpy(value_.header.data() + at, bytes.data(), some);
    } else {
      some = std::min(some, value_.size - at);
      if (!memory.empty()) std::memcpy(memory.data() + (at - value_header_bytes), bytes.data(), some);
    }
    value_.got += some;
    bytes = bytes.subspan(some);
  }
  return {};
}

void redis_connection::end_value(steady_time now, const listener& told) {
  value_.is_open = false;
  if (!value_.is_odd) tell(now, told, {.what = redis_reply::type::value, .header = value_.header});
}

/// Feeds the reader one line: a reply ends with one, so it never takes bytes of the next. False: no whole line is
/// there.
result<bool> redis_connection::take_line(steady_time now, const listener& told) {
  const auto text = buffered();
  if (fed_ == 0 && std::string_view("+-:$").find(text.front()) == std::string_view::npos) {
    return nonsense("\"" + printable(cut_text(text, 100)) + "\"");
  }
  const auto end = text.find('\n');
  if (end == std::string_view::npos) return false;
  fed_ += end + 1;
  if (fed_ > most_reply_bytes) return nonsense("a reply of more than 64 KiB");
  void* parsed = nullptr;
  if (redisReaderFeed(reader_.get(), text.data(), end + 1) != REDIS_OK ||
      redisReaderGetReply(reader_.get(), &parsed) != REDIS_OK) {
    return nonsense(printable(reader_->errstr));
  }
  in_begin_ += end + 1;
  const std::unique_ptr<redisReply, free_reply> reply(static_cast<redisReply*>(parsed));
  if (!reply) return true;
  fed_ = 0;
  redis_reply told_reply;
  if (reply->type == REDIS_REPLY_INTEGER) {
    told_reply = {.what = redis_reply::type::integer, .number = reply->integer};
  } else if (reply->type != REDIS_REPLY_NIL) {
    const bool is_failure = reply->type == REDIS_REPLY_ERROR;
    told_reply = {.what = is_failure ? redis_reply::type::failure : redis_reply::type::text,
                  .text = {reply->str, reply->len}};
  }
  tell(now, told, told_reply);
  return true;
}

void redis_connection::tell(steady_time now, const listener& told, const redis_reply& reply) {
  redis_request request = std::move(waiting_.front());
  waiting_.pop_front();
  value_bytes_ -= value_of(request);
  last_reply_ = now;
  told(request, reply);
}

std::deque<redis_request> redis_connection::close() {
  socket_.reset();
  is_connected_ = false;
  unsent_bytes_ = value_bytes_ = sent_of_first_ = 0;
  std::deque<redis_request> open = std::exchange(waiting_, {});
  for (redis_request& each : unsent_) open.push_back(std::move(each));
  unsent_.clear();
  return open;
}

steady_time redis_connection::expire(steady_time now, const std::function<void(redis_request&)>& told) {
  auto next = steady_time::max();
  for (redis_request& each : waiting_) {
    if (each.is_answered) continue;
    if (each.deadline > now) {
      next = std::min(next, each.deadline);
      continue;
    }
    told(each);
    each.abandon();
  }
  std::deque<redis_request> kept;
  for (std::size_t i = 0; i < unsent_.size(); ++i) {
    redis_request& each = unsent_[i];
    const bool is_begun = i == 0 && sent_of_first_ > 0;
    if (each.is_answered || each.deadline > now) {
      if (!each.is_answered) next = std::min(next, each.deadline);
    } else {
      told(each);
      if (!is_begun) {
        unsent_bytes_ -= each.wire_bytes();
        value_bytes_ -= value_of(each);
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

void redis_connection::visit(const std::function<void(redis_request&)>& visitor) {
  std::ranges::for_each(waiting_, visitor);
  std::ranges::for_each(unsent_, visitor);
}

}  // namespace cenote::remote
