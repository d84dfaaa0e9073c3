#include "services/manager/service/call_log.hpp"

#include <string>
#include <utility>

#include "config/logging.hpp"
#include "core/text.hpp"

namespace cenote::manager {

namespace {

std::string text_for_log(std::string_view text, std::size_t limit) {
  return printable(cut_text(text, limit));
}

}  // namespace

std::optional<std::uint64_t> call_log::take_line(time_point now) {
  const std::lock_guard lock(mutex_);
  if (lines_.delay(now).count() > 0) {
    ++omitted_;
    return std::nullopt;
  }
  lines_.take(1, now);
  return std::exchange(omitted_, 0);
}

void call_log::note(const ended_call& call, time_point now) {
  const auto log = logger("manager");
  const bool takes_all = log->should_log(spdlog::level::debug);
  const auto omitted = takes_all ? std::optional<std::uint64_t>(0) : take_line(now);
  if (!omitted) return;
  const auto took_ms = std::chrono::duration_cast<std::chrono::milliseconds>(call.time).count();
  const std::string trace_id = text_for_log(call.trace_id, longest_trace_id);
  const std::string reason = text_for_log(call.reason, longest_reason);
  const bool is_bug = call.code == answer_code::internal_error;
  log_at(is_bug ? spdlog::level::warn : spdlog::level::info, log,
         call.code == answer_code::ok ? "a call was slow" : "a call was refused",
         {{"call", call.name},
          {"code", name_of(call.code)},
          {"reason", reason},
          {"trace_id", trace_id},
          {"took_ms", took_ms},
          {"omitted_lines", *omitted}});
}

}  // namespace cenote::manager
