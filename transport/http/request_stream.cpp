#include "transport/http/request_stream.hpp"

#include <algorithm>
#include <boost/beast/http/basic_parser.hpp>
#include <cstring>
#include <optional>

namespace cenote::http {

namespace {

namespace beast = boost::beast;

constexpr std::size_t first_capacity = std::size_t{32} << 10U;
constexpr std::size_t kept_capacity = std::size_t{1} << 20U;  ///< larger buffers live as long as their request
constexpr std::size_t least_chunk_end = 5;                    ///< "0\r\n\r\n"

std::string_view standard_view(beast::string_view text) noexcept {
  return {text.data(), text.size()};
}

}  // namespace

/// Beast's parser of one request. It keeps nothing but where in the reader's buffer the parts are.
class request_stream::parser {
 public:
  class grammar final : public beast::http::basic_parser<true> {
   public:
    explicit grammar(request_stream& reader) : reader_(reader) {}

    [[nodiscard]] bool is_fields_over() const noexcept { return is_fields_over_; }

   private:
    using string_view = beast::string_view;
    using error_code = beast::error_code;

    void on_request_impl(beast::http::verb, string_view method, string_view target, int version, error_code&) override {
      reader_.method_ = reader_.place_of(standard_view(method));
      reader_.target_ = reader_.place_of(standard_view(target));
      reader_.version_ = version;
    }
    void on_response_impl(int, string_view, int, error_code&) override {}
    void on_field_impl(beast::http::field, string_view name, string_view value, error_code& wrong) override {
      if (is_fields_over_) return;  // behind the body: nothing reads those
      const char* const memory = reader_.memory_.get();
      const bool is_inside = value.empty() || (value.data() >= memory && value.data() < memory + reader_.end_);
      // A value over several lines was joined elsewhere; such requests are to be refused.
      if (!is_inside) wrong = beast::http::error::bad_value;
      if (reader_.places_.size() >= reader_.limits_.fields) wrong = beast::http::error::header_limit;
      if (wrong) return;
      const auto place = value.empty() ? text_place{} : reader_.place_of(standard_view(value));
      reader_.places_.push_back({reader_.place_of(standard_view(name)), place});
    }
    void on_header_impl(error_code&) override { is_fields_over_ = true; }
    void on_body_init_impl(const boost::optional<std::uint64_t>&, error_code&) override {}
    std::size_t on_body_impl(string_view body, error_code&) override {
      reader_.body_size_ += body.size();
      return body.size();
    }
    void on_chunk_header_impl(std::uint64_t, string_view, error_code&) override {}
    std::size_t on_chunk_body_impl(std::uint64_t, string_view body, error_code&) override {
      std::memmove(reader_.memory_.get() + reader_.body_begin_ + reader_.body_size_, body.data(), body.size());
      reader_.body_size_ += body.size();
      return body.size();
    }
    void on_finish_impl(error_code&) override {}

    request_stream& reader_;
    bool is_fields_over_ = false;
  };

  std::optional<grammar> current;  ///< made anew for each request, since it cannot be reset
};

request_stream::request_stream(const request_limits& limits, buffer_budget& budget)
    : limits_(limits), budget_(budget), parser_(std::make_unique<parser>()) {}

request_stream::~request_stream() {
  if (capacity_ > first_capacity) budget_.give_back(capacity_ - first_capacity);
}

request_stream::text_place request_stream::place_of(std::string_view text) const noexcept {
  const auto offset = static_cast<std::size_t>(text.data() - memory_.get()) - start_;
  return {static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(text.size())};
}

std::string_view request_stream::text_at(text_place place) const noexcept {
  return {memory_.get() + start_ + place.offset, place.size};
}

bool request_stream::keeps_alive() const noexcept {
  return parser_->current && parser_->current->is_header_done() && parser_->current->keep_alive();
}

/// Moves what was not parsed yet behind the part of the body that came in chunks.
void request_stream::close_gap() noexcept {
  const std::size_t body_end = body_begin_ + body_size_;
  if (!is_header_shown_ || parsed_ == body_end) return;
  std::memmove(memory_.get() + body_end, memory_.get() + parsed_, end_ - parsed_);
  end_ -= parsed_ - body_end;
  parsed_ = body_end;
}

/// A buffer of this size, with what is in the present one from the request's begin on.
bool request_stream::reserve(std::size_t capacity) {
  const std::size_t counted = std::max(capacity, first_capacity) - first_capacity;
  if (!budget_.take(counted)) return false;
  auto memory = std::make_unique_for_overwrite<char[]>(capacity + http_request::body_padding);
  if (end_ > start_) std::memcpy(memory.get(), memory_.get() + start_, end_ - start_);
  if (capacity_ > first_capacity) budget_.give_back(capacity_ - first_capacity);
  memory_ = std::move(memory);
  capacity_ = capacity;
  parsed_ -= start_;
  end_ -= start_;
  body_begin_ -= std::min(body_begin_, start_);
  start_ = 0;
  return true;
}

std::span<std::byte> request_stream::room() {
  if (capacity_ == 0 && !reserve(first_capacity)) return {};
  std::size_t least = end_ - start_ + 1;
  std::size_t most = 2 * capacity_;
  const auto length = is_header_shown_ ? parser_->current->content_length() : boost::none;
  if (length) {  // up to the kept size a body gets its place at once; a larger one grows with what comes
    const std::size_t whole = body_begin_ - start_ + static_cast<std::size_t>(*length);
    least = std::max(least, std::min(whole, kept_capacity));
    most = std::max(least, std::min(most, whole));
  }
  if (end_ == capacity_ || start_ + least > capacity_) {
    close_gap();
    move_to_front();
    const bool is_tight = !length && capacity_ - end_ < capacity_ / 4;
    if ((is_tight || least > capacity_ || end_ == capacity_) && !reserve(std::max(least, most))) return {};
  }
  return std::as_writable_bytes(std::span(memory_.get() + end_, capacity_ - end_));
}

void request_stream::move_to_front() noexcept {
  if (start_ == 0) return;
  std::memmove(memory_.get(), memory_.get() + start_, end_ - start_);
  parsed_ -= start_;
  end_ -= start_;
  body_begin_ -= std::min(body_begin_, start_);
  start_ = 0;
}

void request_stream::begin() {
  parser_->current.emplace(*this);
  parser_->current->header_limit(static_cast<std::uint32_t>(limits_.header));
  parser_->current->body_limit(limits_.body);
  places_.clear();
  body_begin_ = 0;
  body_size_ = 0;
  is_header_shown_ = false;
  is_head_ = false;
  awaits_continue_ = false;
  is_begun_ = true;
}

void request_stream::finish() {
  start_ = parsed_;
  is_begun_ = false;
  is_header_shown_ = false;
  is_head_ = false;
  body_begin_ = body_size_ = 0;
  request_ = {};
  if (start_ == end_) start_ = parsed_ = end_ = 0;
  if (capacity_ > kept_capacity && end_ - start_ < first_capacity) static_cast<void>(reserve(first_capacity));
}

stream_state request_stream::refuse(int status, std::string text) {
  refusal_ = {status, std::move(text)};
  return stream_state::refused;
}

stream_state request_stream::advance() {
  if (!is_begun_) {
    // An empty line in front of a request is left from the one before.
    while (start_ < end_ && (memory_[start_] == '\r' || memory_[start_] == '\n')) parsed_ = ++start_;
    if (start_ == end_) return stream_state::incomplete;
    begin();
  }
  bool is_over = false;
  stream_state state = stream_state::incomplete;
  while (!is_over) state = advance_once(is_over);
  return state;
}

/// One step of the parser: the header, a piece of the body, a chunk's head. `is_over`: no other follows for now.
stream_state request_stream::advance_once(bool& is_over) {
  auto& grammar = *parser_->current;
  is_over = true;
  if (grammar.is_done()) {
    show_request();
    return stream_state::complete;
  }
  const std::size_t size = end_ - parsed_;
  // Beast asserts that the last chunk has come as a whole.
  const std::size_t least = is_header_shown_ && grammar.chunked() ? least_chunk_end : 1;
  if (size < least) return stream_state::incomplete;
  beast::error_code wrong;
  parsed_ += grammar.put(boost::asio::const_buffer(memory_.get() + parsed_, size), wrong);
  namespace errors = beast::http;
  if (wrong == errors::error::body_limit) {
    return refuse(413, "the body is larger than the " + std::to_string(limits_.body) + " bytes that are allowed");
  }
  const bool is_long = !grammar.is_fields_over() && parsed_ - start_ > limits_.header;
  if (wrong == errors::error::header_limit || is_long) {
    return refuse(431, "the header has more than " + std::to_string(limits_.header) + " bytes or " +
                           std::to_string(limits_.fields) + " fields");
  }
  if (wrong && wrong != errors::error::need_more) return refuse(400, "this is no HTTP/1.1 request: " + wrong.message());
  if (grammar.is_fields_over() && !is_header_shown_) {
    const stream_state state = finish_header();
    is_over = state != stream_state::incomplete;
    return state;
  }
  if (!wrong) {
    is_over = false;
    return stream_state::incomplete;
  }
  if (grammar.is_fields_over() && end_ - parsed_ > limits_.header) {
    return refuse(400, "the head of a chunk, or what follows the last one, has more than " +
                           std::to_string(limits_.header) + " bytes");
  }
  return stream_state::incomplete;
}

stream_state request_stream::finish_header() {
  is_header_shown_ = true;
  body_begin_ = parsed_;
  if (!check_fields()) return stream_state::refused;
  return parser_->current->is_done() ? stream_state::incomplete : stream_state::header;
}

/// The rules of RFC 9112 beyond the grammar, above all where two readers could see two ends of a request.
bool request_stream::check_fields() {
  std::size_t hosts = 0;
  std::size_t lengths = 0;
  is_head_ = text_at(method_) == "HEAD";
  for (const field_place& each : places_) {
    const std::string_view name = text_at(each.name);
    const std::string_view value = text_at(each.value);
    if (is_same_name(name, "Host")) ++hosts;
    if (is_same_name(name, "Content-Length")) lengths += value.find(',') == std::string_view::npos ? 1 : 2;
    if (is_same_name(name, "Transfer-Encoding") && (!is_same_name(value, "chunked") || is_old_version())) {
      static_cast<void>(refuse(501, "the transfer encoding '" + std::string(value) + "' is not known; use chunked"));
      return false;
    }
    if (is_same_name(name, "Expect") && !is_old_version()) {
      awaits_continue_ = is_same_name(value, "100-continue");
      if (!awaits_continue_) {
        static_cast<void>(refuse(417, "only 100-continue can be expected"));
        return false;
      }
    }
  }
  if (hosts > 1 || (hosts == 0 && !is_old_version())) {
    static_cast<void>(refuse(400, "a request of HTTP/1.1 has one header field Host"));
    return false;
  }
  if (lengths > 1) {
    static_cast<void>(refuse(400, "a request has one Content-Length"));
    return false;
  }
  return true;
}

std::string_view request_stream::origin_target() const noexcept {
  std::string_view target = text_at(target_);
  if (!target.starts_with('/')) {  // "http://host/path", as proxies send it
    const auto scheme = target.find("://");
    const auto slash = scheme == std::string_view::npos ? scheme : target.find('/', scheme + 3);
    if (slash != std::string_view::npos) target.remove_prefix(slash);
  }
  return target.substr(0, target.find('#'));
}

std::string_view request_stream::path() const noexcept {
  const std::string_view target = origin_target();
  return target.substr(0, target.find('?'));
}

std::string_view request_stream::header(std::string_view name) const noexcept {
  for (const field_place& each : places_) {
    if (is_same_name(text_at(each.name), name)) return text_at(each.value);
  }
  return {};
}

void request_stream::show_request() {
  fields_.clear();
  for (const field_place& each : places_) fields_.push_back({text_at(each.name), text_at(each.value)});
  const std::string_view target = origin_target();
  const auto question = target.find('?');
  request_.method = is_head_ ? std::string_view("GET") : text_at(method_);
  request_.path = target.substr(0, question);
  request_.query = question == std::string_view::npos ? std::string_view() : target.substr(question + 1);
  request_.body = std::as_bytes(std::span(memory_.get() + body_begin_, body_size_));
  request_.fields = fields_;
  request_.content_type = request_.header("Content-Type");
}

}  // namespace cenote::http
