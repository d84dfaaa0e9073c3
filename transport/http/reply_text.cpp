#include "transport/http/reply_text.hpp"

#include <array>
#include <charconv>
#include <utility>

namespace cenote::http {

namespace {

constexpr std::size_t kept_text = std::size_t{1} << 20U;

void append_size(std::string& out, std::size_t value, int base) {
  std::array<char, 24> digits;
  out.append(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value, base).ptr);
}

}  // namespace

void reply_text::set(http_reply& reply, const reply_framing& framing) {
  body_.swap(reply.body);
  rest_ = std::move(reply.rest);
  is_chunked_ = rest_ != nullptr && !framing.is_old_version;
  write_head(reply, framing);
  if (framing.is_head) {
    body_.clear();
    rest_.reset();
  } else if (is_chunked_) {
    part_.swap(body_);
    body_.clear();
    append_chunk();
  }
}

void reply_text::write_head(const http_reply& reply, const reply_framing& framing) {
  head_ = "HTTP/1.1 ";
  append_size(head_, static_cast<std::size_t>(reply.status), 10);
  head_ += ' ';
  head_ += status_text(reply.status);
  head_ += "\r\nContent-Type: ";
  head_ += reply.content_type;
  if (is_chunked_) {
    head_ += "\r\nTransfer-Encoding: chunked";
  } else if (!rest_) {
    head_ += "\r\nContent-Length: ";
    append_size(head_, body_.size(), 10);
  }
  if (framing.is_last) {
    head_ += "\r\nConnection: close";
  } else if (framing.is_old_version) {
    head_ += "\r\nConnection: keep-alive";
  }
  if (!reply.allow.empty()) {
    head_ += "\r\nAllow: ";
    head_ += reply.allow;
  }
  if (reply.status == 401) {
    head_ += "\r\nWWW-Authenticate: ";
    head_ += reply.challenge;
  }
  if (reply.retry_after != 0) {
    head_ += "\r\nRetry-After: ";
    append_size(head_, reply.retry_after, 10);
  }
  head_ += "\r\n\r\n";
}

/// The chunk of `part_`; an empty one would be the last.
void reply_text::append_chunk() {
  if (part_.empty()) return;
  append_size(body_, part_.size(), 16);
  body_ += "\r\n";
  body_ += part_;
  body_ += "\r\n";
  part_.clear();
}

bool reply_text::make_next_part() {
  body_.clear();
  const bool has_more = rest_->next(is_chunked_ ? part_ : body_);
  if (is_chunked_) append_chunk();
  if (has_more) return !body_.empty();
  if (is_chunked_) body_ += "0\r\n\r\n";
  rest_.reset();
  return true;
}

void reply_text::trim() {
  if (body_.capacity() > kept_text) std::string().swap(body_);
  if (part_.capacity() > kept_text) std::string().swap(part_);
}

}  // namespace cenote::http
