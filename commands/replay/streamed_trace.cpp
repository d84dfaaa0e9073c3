#include "commands/replay/streamed_trace.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "commands/replay/ctrace_file.hpp"
#include "commands/replay/input.hpp"
#include "commands/replay/sizes.hpp"
#include "commands/replay/time_scales.hpp"
#include "commands/replay/trace_lines.hpp"
#include "core/unique_fd.hpp"
#include "simulation/formats/ctrace.hpp"

namespace cenote::replay {

namespace {

using formats::line_request;
using simulation::chain_access;

std::unexpected<error> refuse(const std::string& path, std::uint64_t line, std::string_view reason) {
  return fail(error_code::unsupported, fmt::format("{}:{}: {}", path, line, reason));
}

constexpr std::uint64_t us_per_ms = 1'000;
constexpr std::uint64_t far_us = 3'600'000'000;                 // an hour
constexpr std::uint64_t since_1970_us = 1'000'000'000'000'000;  // 2001

/// Times of requests one after the other, in milliseconds. Those since 1970 count from the first one on. One that is
/// over an hour ahead counts only if the next one is, too.
class forward_clock {
 public:
  std::uint64_t advance(std::uint64_t time_us) noexcept {
    if (!start_us_) start_us_ = time_us >= since_1970_us ? time_us : 0;
    const std::uint64_t passed_us = time_us - std::min(time_us, *start_us_);
    const bool is_far = is_running_ && passed_us > latest_ * us_per_ms + far_us;
    if (!is_far || is_ahead_) latest_ = std::max(latest_, std::min(passed_us / us_per_ms, simulation::trace::most_ms));
    is_ahead_ = is_far && !is_ahead_;
    is_running_ = true;
    return latest_;
  }
  [[nodiscard]] std::uint64_t latest() const noexcept { return latest_; }
  [[nodiscard]] bool is_since_1970() const noexcept { return start_us_.value_or(0) != 0; }

 private:
  std::optional<std::uint64_t> start_us_;
  std::uint64_t latest_ = 0;
  bool is_running_ = false;
  bool is_ahead_ = false;  ///< the latest time was far, and did not count
};

// ---------------------------------------------------------------------------------------------- lines

class line_stream {
 public:
  line_stream(const std::string& path, const trace_reading& reading, const chain_listener& listener)
      : path_(path),
        listener_(listener),
        unit_option_(reading.unit),
        lines_(path, reading, formats::key_naming::hashed) {}

  result<streamed_trace> read() {
    const auto from = open_packed_file(path_);
    if (!from) return std::unexpected(from.error());
    if (auto ok = lines_.read(**from, [&] { return take(); }); !ok) return std::unexpected(ok.error());
    if (auto ok = lines_.judge(out_.requests); !ok) return std::unexpected(ok.error());
    note_untimed();
    note_rate();
    const formats::line_requests& read = lines_.requests();
    out_.format = lines_.format()->name;
    out_.block_tokens = read.block_tokens;
    out_.instances = std::max<std::uint64_t>(1, read.instances.size());
    out_.lines = lines_.lines();
    out_.left_out = lines_.left_out();
    out_.warnings = lines_.complaints().texts(path_);
    return std::move(out_);
  }

 private:
  result<void> take() {
    const formats::line_requests& read = lines_.requests();
    std::uint64_t line = 0;
    for (const line_request& each : read.requests) {
      if (auto ok = check_order(each, line); !ok) return ok;
      line = each.line;
      out_.requests += 1;
      out_.tokens += each.tokens;
      out_.blocks += each.count;
      listener_(std::span(read.ids).subspan(each.first, each.count), time_of(each));
    }
    lines_.drop_requests();
    return {};
  }

  result<void> check_order(const line_request& request, std::uint64_t line) {
    if (request.access != chain_access::both) {
      return refuse(path_, request.line, apart_text);
    }
    if (request.line == line || request.source == line_request::time_source::delay) {
      return refuse(path_, request.line,
                    "the turns of sessions have to be put in the order of their times, and a sample takes requests in "
                    "that of the lines; `cenote trace convert` puts them in order");
    }
    if (request.source == line_request::time_source::none) {
      if (first_untimed_ == 0) first_untimed_ = request.line;
      return {};
    }
    is_timed_ = true;
    if (request.unit == unit_ && request.time < time_) {
      lines_.complaints().note(
          "unsorted", request.line,
          "time goes back here; a sample takes the requests in the order of the lines, `cenote trace convert` sorts "
          "them");
    }
    unit_ = request.unit;
    time_ = request.time;
    return {};
  }

  /// The unit is that of the line, of the options or of the format; else that in which the first time is one since
  /// 1970, or milliseconds.
  std::uint64_t time_of(const line_request& request) {
    if (request.source == line_request::time_source::none) return clock_.latest();
    if (usual_ == nullptr) usual_ = &usual_scale(request);
    if (request.unit == time_unit::automatic && is_guessed_) check_guess(request);
    const std::uint64_t time_ms = clock_.advance(microseconds_of(request, *usual_));
    if (!guessed_.add(request) || guessed_.requests > 1) return time_ms;
    first_guessed_ = request.line;
    first_ms_ = time_ms;
    return time_ms;
  }

  /// Whether the times are milliseconds for no other reason than that these are usual.
  [[nodiscard]] bool is_usual() const {
    return is_guessed_ && usual_->unit == time_unit::milliseconds && !clock_.is_since_1970();
  }

  void note_rate() {
    if (!is_usual()) return;
    constexpr double ms_per_s = 1e3;
    guessed_.seconds = static_cast<double>(clock_.latest() - first_ms_) / ms_per_s;
    if (auto text = guessed_.remark()) lines_.complaints().note("rate", first_guessed_, std::move(*text));
  }

  const time_scale& usual_scale(const line_request& request) {
    const time_unit unit = given_unit(unit_option_, lines_.format());
    if (unit != time_unit::automatic) return scale_of(unit);
    is_guessed_ = true;
    const time_scale* const guessed = scale_since_1970(request.time);
    if (guessed == nullptr) return scale_of(time_unit::milliseconds);
    lines_.complaints().note("since 1970", request.line, since_1970_remark(*guessed));
    return *guessed;
  }

  /// The other reading goes by the time in the middle.
  void check_guess(const line_request& request) {
    const time_scale* const guessed = scale_since_1970(request.time);
    if (guessed == nullptr || guessed == usual_) return;
    lines_.complaints().note("another unit", request.line,
                             fmt::format("`timestamp` looks like {} since 1970, and is taken as {}, as the first one; "
                                         "--time-unit says otherwise",
                                         guessed->name, usual_->name));
  }

  /// The other reading leaves these lines out, which is known here when all are read.
  void note_untimed() {
    if (!is_timed_ || first_untimed_ == 0) return;
    lines_.complaints().note("untimed", first_untimed_,
                             "`timestamp` is missing, though other lines have one; a sample takes such lines, and "
                             "without --sample they are left out");
  }

  const std::string& path_;
  const chain_listener& listener_;
  time_unit unit_option_;
  trace_lines lines_;
  const time_scale* usual_ = nullptr;  ///< of times; known at the first one
  bool is_guessed_ = false;
  forward_clock clock_;
  guessed_times guessed_;
  std::uint64_t first_guessed_ = 0;  ///< its line
  std::uint64_t first_ms_ = 0;       ///< … and its time
  bool is_timed_ = false;            ///< a request has a time
  std::uint64_t first_untimed_ = 0;  ///< its line
  time_unit unit_ = time_unit::automatic;
  double time_ = 0;
  streamed_trace out_;
};

// ---------------------------------------------------------------------------------------------- .ctrace

/// An open file.
class file_bytes final : public formats::ctrace::placed_bytes {
 public:
  file_bytes(unique_fd file, std::string name, std::uint64_t size)
      : file_(std::move(file)), name_(std::move(name)), size_(size) {}

  [[nodiscard]] std::uint64_t size() const noexcept override { return size_; }
  [[nodiscard]] result<void> read(std::uint64_t offset, std::span<std::byte> target) override {
    for (std::size_t done = 0; done < target.size();) {
      const ssize_t got = ::pread(file_.get(), target.data() + done, target.size() - done, place(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return fail_errno("read", name_);
      if (got == 0) return fail(error_code::malformed, fmt::format("{} became shorter", name_));
      done += static_cast<std::size_t>(got);
    }
    return {};
  }
  [[nodiscard]] result<void> write(std::uint64_t offset, std::span<const std::byte> bytes) override {
    for (std::size_t done = 0; done < bytes.size();) {
      const ssize_t put = ::pwrite(file_.get(), bytes.data() + done, bytes.size() - done, place(offset + done));
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return fail_errno("write", name_);
      done += static_cast<std::size_t>(put);
    }
    size_ = std::max(size_, offset + bytes.size());
    return {};
  }

 private:
  static off_t place(std::uint64_t offset) noexcept { return static_cast<off_t>(offset); }

  unique_fd file_;
  std::string name_;
  std::uint64_t size_;
};

/// A file without a name, which goes with its descriptor; made when something is written to it.
class nameless_file final : public formats::ctrace::placed_bytes {
 public:
  [[nodiscard]] std::uint64_t size() const noexcept override { return file_ ? file_->size() : 0; }
  [[nodiscard]] result<void> read(std::uint64_t offset, std::span<std::byte> target) override {
    return file_->read(offset, target);
  }
  [[nodiscard]] result<void> write(std::uint64_t offset, std::span<const std::byte> bytes) override {
    if (!file_) {
      if (auto ok = make(); !ok) return ok;
    }
    return file_->write(offset, bytes);
  }

 private:
  result<void> make() {
    const std::filesystem::path folder = temporary_folder();
    std::string name = folder / "cenote-chains-XXXXXX";
    unique_fd file(::mkostemp(name.data(), O_CLOEXEC));
    if (!file) return fail_errno("make a file in", folder.string());
    ::unlink(name.c_str());
    file_ = std::make_unique<file_bytes>(std::move(file), std::move(name), 0);
    return {};
  }

  std::unique_ptr<file_bytes> file_;
};

class ctrace_stream {
 public:
  ctrace_stream(const std::string& path, const trace_reading& reading, const chain_listener& listener)
      : path_(path), reading_(reading), listener_(listener) {}

  result<streamed_trace> read() {
    if (auto ok = check_ctrace_reading(path_, reading_); !ok) return std::unexpected(ok.error());
    unique_fd opened(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
    if (!opened) return fail_errno("read", path_);
    struct stat status {};
    if (::fstat(opened.get(), &status) != 0) return fail_errno("fstat", path_);
    file_bytes file(std::move(opened), path_, static_cast<std::uint64_t>(status.st_size));
    nameless_file blocks;
    nameless_file ends;
    const auto passed = formats::ctrace::pass_requests(
        file, {.blocks = blocks, .ends = ends, .room = room_of("").disk / 2},
        [&](const simulation::trace::arrival& request, std::span<const std::uint32_t> chain,
            std::uint64_t block_tokens) { return take(request, chain, block_tokens); });
    if (!passed) return std::unexpected(passed.error().in(path_));
    if (out_.requests == 0) return fail(error_code::malformed, fmt::format("{} holds no request", path_));
    out_.format = own_format;
    out_.block_tokens = passed->block_tokens;
    out_.instances = passed->instances;
    out_.lines = passed->facts.lines;
    out_.left_out = passed->facts.left_out;
    return std::move(out_);
  }

 private:
  result<void> take(const simulation::trace::arrival& request, std::span<const std::uint32_t> blocks,
                    std::uint64_t block_tokens) {
    if (out_.requests == 0) {
      if (auto ok = check_ctrace_block_tokens(path_, reading_, block_tokens); !ok) return ok;
    }
    if (request.access != chain_access::both) {
      return fail(error_code::unsupported, std::string(apart_text));
    }
    const std::uint64_t full = request.tokens / block_tokens;
    const auto used = reading_.full_blocks ? blocks.first(std::min<std::uint64_t>(full, blocks.size())) : blocks;
    chain_.assign(used.begin(), used.end());
    out_.requests += 1;
    out_.tokens += request.tokens;
    out_.blocks += chain_.size();
    listener_(chain_, clock_.advance(request.time_ms * us_per_ms));
    return {};
  }

  const std::string& path_;
  const trace_reading& reading_;
  const chain_listener& listener_;
  std::vector<std::uint64_t> chain_;
  forward_clock clock_;
  streamed_trace out_;
};

}  // namespace

result<streamed_trace> stream_trace_file(const std::string& path, const trace_reading& reading,
                                         const chain_listener& listener) {
  if (auto ok = check_format(path, reading); !ok) return std::unexpected(ok.error());
  if (is_ctrace_file(path)) return ctrace_stream(path, reading, listener).read();
  return line_stream(path, reading, listener).read();
}

}  // namespace cenote::replay
