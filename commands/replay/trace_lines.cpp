#include "commands/replay/trace_lines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <new>
#include <system_error>
#include <utility>

#include "commands/replay/line.hpp"
#include "commands/replay/sizes.hpp"
#include "simulation/formats/ctrace.hpp"
#include "simulation/formats/members.hpp"

namespace cenote::replay {

namespace {

using simdjson::dom::element;

constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
static_assert(line_reader::padding >= simdjson::SIMDJSON_PADDING);
constexpr std::size_t sample_requests = 64;
constexpr std::size_t line_share = 16;  // of the room: the parser takes about as many times a line's size

// Memory of a trace while it is made, at most: an id, its block, the block's identity and its place in a table; a
// request in its three forms.
constexpr std::uint64_t id_bytes = 28;
constexpr std::uint64_t request_bytes =
    sizeof(formats::line_request) + sizeof(simulation::trace::arrival) + sizeof(simulation::trace::entry);

std::string unknown_format_text(const element& object) {
  std::string names;
  for (const auto& each : formats::table()) names += fmt::format("{}{}", names.empty() ? "" : ", ", each.name);
  const bool has_ids = !formats::present_name(object, formats::id_names).empty();
  return fmt::format("{}; --format is one of {}",
                     has_ids ? "this is a line of no format that is known"
                             : "`hash_ids` is missing, and nothing else here tells a format",
                     names);
}

/// Whether it is the first line of a `.ctrace`, without its end.
bool is_ctrace_line(std::string_view line) {
  constexpr std::size_t enough = 8;
  const std::string begin = std::string(line.substr(0, enough)) + '\n';
  return formats::ctrace::is_begun(std::as_bytes(std::span(begin)));
}

}  // namespace

trace_lines::trace_lines(const std::string& path, const trace_reading& reading, formats::key_naming naming)
    : trace_lines(path, reading, naming, bounds()) {}

trace_lines::trace_lines(const std::string& path, const trace_reading& reading, formats::key_naming naming,
                         const bounds& limits)
    : path_(path), reading_(reading), bounds_(limits) {
  read_.sharing = reading.sharing;
  read_.naming = naming;
  if (const formats::format* given = formats::find(reading.format.empty() ? "mooncake" : reading.format)) open(*given);
}

result<void> trace_lines::read(byte_source& source, const request_listener& listener) {
  try {
    return read_lines(source, listener);
  } catch (const std::bad_alloc&) {
    return fail(error_code::limit_exceeded, fmt::format("there is not enough memory for a line of {}", path_));
  }
}

/// Without a listener more than the bound where the room is large, and less than the room: a line may have no end.
std::size_t trace_lines::longest_line() const noexcept {
  return is_streamed_ ? bounds_.line : std::max<std::size_t>(bounds_.line, room_ / line_share);
}

result<void> trace_lines::read_lines(byte_source& source, const request_listener& listener) {
  is_streamed_ = static_cast<bool>(listener);
  room_ = bounds_.room ? *bounds_.room : room_for_trace();
  reserve_ids();
  line_reader lines(source, longest_line());
  for (std::uint64_t number = 1;; ++number) {
    const auto next = lines.next();
    if (!next && next.error().code() == error_code::limit_exceeded)
      return std::unexpected(next.error().in(fmt::format("{}:{}", path_, number)));
    if (!next) return std::unexpected(next.error());
    if (!*next) break;
    if (auto ok = take_line(**next, number); !ok) return ok;
    if (is_streamed_ && has_open_writes_)
      return fail(error_code::unsupported, fmt::format("{}:{}: {}", path_, number, apart_text));
    if (!listener || !is_decided_ || requests_.empty()) continue;
    if (auto ok = listener(); !ok) return ok;
  }
  if (auto ok = end(); !ok) return ok;
  return listener && !requests_.empty() ? listener() : result<void>{};
}

result<void> trace_lines::take_line(std::string_view line, std::uint64_t number) {
  bytes_ += line.size() + 1;
  if (number == 1 && line.starts_with(byte_order_mark)) line.remove_prefix(byte_order_mark.size());
  const std::size_t begin = line.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  if (lines_read_++ == 0 && line[begin] == '[') return refuse_array(number);
  if (number == 1 && is_ctrace_line(line)) return refuse_ctrace();
  const std::size_t requests = requests_.size();
  const std::size_t ids = ids_.size();
  const auto form = read_.form;
  if (parse(line, number) && (!is_decided_ || judge_from(requests))) {
    if (!is_decided_ && is_sample_full()) return decide();
    return check_memory();
  }
  read_.form = form;
  requests_.resize(requests);
  ids_.resize(ids);
  ++left_out_;
  return {};
}

/// Whether no further request is needed to decide, or none may be kept for that.
bool trace_lines::is_sample_full() const noexcept {
  return requests_.size() >= sample_requests || (is_streamed_ && ids_.size() >= bounds_.undecided);
}

/// The tokens of a block are those that the first requests fit, unless they are given; then these are judged.
result<void> trace_lines::decide() {
  is_decided_ = true;
  if (!std::exchange(read_.has_block_tokens, true)) take_fitting_size();
  const auto read = std::exchange(requests_, {});
  const auto ids = std::exchange(ids_, {});
  reserve_ids();
  for (std::size_t i = 0; i < read.size();) {
    const std::size_t count = requests_.size();
    const std::size_t size = ids_.size();
    const std::uint64_t line = read[i].line;
    for (; i < read.size() && read[i].line == line; ++i) {
      requests_.push_back(read[i]);
      requests_.back().first = ids_.size();
      const auto first = ids.begin() + static_cast<std::ptrdiff_t>(read[i].first);
      ids_.insert(ids_.end(), first, first + static_cast<std::ptrdiff_t>(read[i].count));
    }
    if (judge_from(count)) continue;
    requests_.resize(count);
    ids_.resize(size);
    ++left_out_;
  }
  return check_whole_file();
}

void trace_lines::take_fitting_size() {
  const auto size = fitting_block_tokens(requests_, read_.block_tokens);
  if (!size || *size == read_.block_tokens) return;
  read_.block_tokens = *size;
  complaints_.note("fitting size", requests_.front().line,
                   fmt::format("ids and tokens fit blocks of {} tokens, which are taken; --block-tokens gives another "
                               "number",
                               *size));
}

/// Memory that is not written to costs nothing; growing would write to it twice.
void trace_lines::reserve_ids() {
  if (is_streamed_) return;
  constexpr std::uintmax_t usual_bytes_per_id = 8;
  constexpr std::uintmax_t most = std::uintmax_t{1} << 27;
  std::error_code unknown;
  const std::uintmax_t size = std::filesystem::file_size(path_, unknown);
  if (!unknown) ids_.reserve(std::min(size / usual_bytes_per_id, most));
}

/// By the first lines, for a file whose size is that of its lines.
result<void> trace_lines::check_whole_file() const {
  std::error_code unknown;
  const std::uintmax_t size = std::filesystem::file_size(path_, unknown);
  if (is_streamed_ || unknown || bytes_ == 0) return {};
  const auto times = std::max(1.0, static_cast<double>(size) / static_cast<double>(bytes_));
  const double needed = times * static_cast<double>(needed_bytes());
  if (needed <= static_cast<double>(room_)) return {};
  return fail(
      error_code::limit_exceeded,
      fmt::format("{} has {} bytes; by its first lines its requests take about {:.0f} bytes of memory, and there "
                  "are {}",
                  path_, size, needed, room_));
}

std::uint64_t trace_lines::needed_bytes() const noexcept {
  return ids_.size() * id_bytes + requests_.size() * request_bytes;
}

result<void> trace_lines::check_memory() const {
  if (is_streamed_ || needed_bytes() <= room_) return {};
  return fail(error_code::limit_exceeded,
              fmt::format("the requests of {} up to line {} take {} bytes of memory, and there are {}", path_,
                          requests_.back().line, needed_bytes(), room_));
}

result<void> trace_lines::refuse_ctrace() const {
  return fail(error_code::unsupported,
              fmt::format("{} is a .ctrace file that is packed, or comes through a pipe; its own frames are packed and "
                          "read at their places: give the unpacked file",
                          path_));
}

result<void> trace_lines::refuse_array(std::uint64_t line) const {
  return fail(
      error_code::malformed,
      fmt::format("{0}:{1}: this file is one JSON array, but a trace has a JSON object a line; `jq -c '.[]' {0}` "
                  "writes it like that",
                  path_, line));
}

void trace_lines::open(const formats::format& format) {
  format_ = &format;
  reader_ = format.open();
  read_.has_block_tokens = reading_.block_tokens != 0;
  read_.block_tokens = read_.has_block_tokens ? reading_.block_tokens : format.block_tokens;
  has_usual_lines_ = format.name == "mooncake";
  has_open_writes_ = format.name == "tair-log";
}

/// A bad line is none to recognize the format by; a later one may be.
void trace_lines::close() {
  format_ = nullptr;
  reader_.reset();
  read_.instances.clear();
  has_usual_lines_ = has_open_writes_ = false;
}

/// Appends the requests of a line.
bool trace_lines::parse(std::string_view line, std::uint64_t number) {
  formats::line_request request{.line = number, .first = ids_.size()};
  if (has_usual_lines_ && read_.form != formats::id_form::text) {
    if (const auto usual = parse_usual_line(line, ids_)) {
      request.whole = usual->timestamp;
      request.is_whole = true;
      request.time = static_cast<double>(request.whole);
      request.tokens = usual->input_length;
      request.count = ids_.size() - request.first;
      requests_.push_back(request);
      if (request.count > 0) read_.form = formats::id_form::numbers;
      return true;
    }
    ids_.resize(request.first);
  }
  return parse_json(line, number);
}

/// Any form that JSON allows.
bool trace_lines::parse_json(std::string_view line, std::uint64_t number) {
  element object;
  const auto parsed = parser_.parse(line.data(), line.size(), false).get(object);
  if (parsed == simdjson::MEMALLOC) throw std::bad_alloc();
  if (parsed == simdjson::NUMBER_ERROR) return complaints_.add(number, "a number here is none, or too large");
  if (parsed != simdjson::SUCCESS) return complaints_.add(number, "this is no JSON");
  if (!object.is_object()) return complaints_.add(number, "a JSON object was expected");
  const bool is_first = !reader_;
  if (is_first) {
    const formats::format* recognized = formats::recognize(object);
    if (recognized == nullptr) return complaints_.add("no format", number, unknown_format_text(object));
    open(*recognized);
  }
  const bool has_size = read_.has_block_tokens;
  const std::uint64_t size = read_.block_tokens;
  const std::size_t requests = requests_.size();
  auto ok = formats::take_block_tokens(object, read_);
  if (ok) ok = reader_->take(object, number, read_);
  if (!ok) complaints_.add(ok.error().kind, number, ok.error().text);
  if (ok && (has_size == read_.has_block_tokens || fits_own_size(requests))) return true;
  read_.has_block_tokens = has_size;
  read_.block_tokens = size;
  if (is_first) close();
  return false;
}

/// Whether the requests behind the first `count` make sense with the size of a block that their line has, before it is
/// that of all other lines.
bool trace_lines::fits_own_size(std::size_t count) {
  complaint_list unsaid;
  request_checks checks(unsaid);
  return std::ranges::all_of(std::span(requests_).subspan(count), [&](const formats::line_request& each) {
    return checks.passes(each, read_) || checks_.passes(each, read_);
  });
}

/// Whether the requests behind the first `count` make sense.
bool trace_lines::judge_from(std::size_t count) {
  return std::ranges::all_of(std::span(requests_).subspan(count),
                             [&](formats::line_request& each) { return judge_one(each); });
}

/// Whether it makes sense; it loses the blocks that are not full, where it shall.
bool trace_lines::judge_one(formats::line_request& request) {
  if (!checks_.passes(request, read_)) return false;
  const std::uint64_t full = request.tokens / read_.block_tokens;
  if (!reading_.full_blocks || request.count <= full) return true;
  if (request.first + request.count == ids_.size()) ids_.resize(request.first + full);
  request.count = full;
  return true;
}

/// Takes the requests that no line completes.
result<void> trace_lines::end() {
  if (!reader_) return {};
  if (!is_decided_) {
    if (auto ok = decide(); !ok) return ok;
  }
  const auto count = static_cast<std::ptrdiff_t>(requests_.size());
  reader_->end(read_);
  const auto unsound = std::remove_if(requests_.begin() + count, requests_.end(),
                                      [&](formats::line_request& each) { return !judge_one(each); });
  left_out_ += static_cast<std::uint64_t>(requests_.end() - unsound);
  requests_.erase(unsound, requests_.end());
  return {};
}

result<void> trace_lines::judge(std::uint64_t requests) const {
  const auto reason = complaints_.first_reason(path_);
  if (requests == 0) {
    const std::string none = lines_read_ == 0 ? "it is empty" : fmt::format("none of its {} lines is one", lines_read_);
    return fail(error_code::malformed,
                fmt::format("{} holds no request; {}", path_, reason ? "first of all, " + *reason : none));
  }
  if (reading_.allow_left_out || left_out_ * 10 <= lines_read_) return {};
  return fail(error_code::malformed,
              fmt::format("{}: {} of {} lines make no sense, first of all {}; --allow-left-out goes on without them",
                          path_, left_out_, lines_read_, reason.value_or("")));
}

}  // namespace cenote::replay
