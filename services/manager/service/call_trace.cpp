#include "services/manager/service/call_trace.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "config/logging.hpp"
#include "core/calendar_clock.hpp"
#include "core/json_writer.hpp"

namespace cenote::manager {

namespace {

namespace meta = ::kv_cache_manager::proto::meta;

std::int64_t unix_us() {
  return static_cast<std::int64_t>(calendar_ns() / 1'000);
}

std::string_view text_of(query_kind kind) noexcept {
  switch (kind) {
    case query_kind::unspecified:
    case query_kind::prefix: return "prefix_match";
    case query_kind::batch: return "batch_get";
    case query_kind::window: return "reverse_roll_sw_match";
    case query_kind::prefix_with_mamba: return "prefix_match_with_mamba";
  }
  return "";
}

void begin_line(json_writer& json, std::string_view type, std::uint64_t number, std::string_view instance,
                std::int64_t time) {
  json.begin_object();
  json.name("id");
  json.text(std::to_string(number));
  json.name("source");
  json.text(instance);
  json.name("component");
  json.text("cache_manager");
  json.name("type");
  json.text(type);
  json.name("trigger_time_us");
  json.signed_number(time);
}

void write_keys(json_writer& json, std::span<const cache_key> keys) {
  json.name("keys");
  json.begin_list();
  for (const cache_key& key : keys) json.signed_number(static_cast<std::int64_t>(key.low ^ key.high));
  json.end_list();
  json.name("tokens");
  json.begin_list();
  json.end_list();
}

/// For appending; with its size.
result<std::pair<unique_fd, std::uint64_t>> open_file(const std::string& path) {
  unique_fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!file) return fail_errno("open", path);
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) return fail_errno("fstat", path);
  return std::pair(std::move(file), static_cast<std::uint64_t>(facts.st_size));
}

}  // namespace

result<std::unique_ptr<call_trace>> call_trace::open(std::string path, std::uint64_t most_file_bytes) {
  auto file = open_file(path);
  if (!file) return std::unexpected(file.error());
  return std::unique_ptr<call_trace>(
      new call_trace(std::move(path), most_file_bytes, std::move(file->first), file->second));
}

call_trace::call_trace(std::string path, std::uint64_t most_file_bytes, unique_fd file, std::uint64_t file_bytes)
    : path_(std::move(path)),
      most_file_bytes_(most_file_bytes),
      file_(std::move(file)),
      file_bytes_(file_bytes),
      thread_([this] { run(); }) {}

call_trace::~call_trace() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    arrival_.notify_one();
  }
  thread_.join();
}

void call_trace::note_lookup(std::string_view instance, query_kind kind, std::int64_t window,
                             std::span<const cache_key> keys) {
  std::string line;
  json_writer json(line);
  begin_line(json, "GetCacheLocation", next_number_.fetch_add(1, std::memory_order_relaxed), instance, unix_us());
  json.name("query_type");
  json.text(text_of(kind));
  write_keys(json, keys);
  json.name("block_mask");
  json.number(0);
  json.name("sw_size");
  json.signed_number(window);
  json.name("location_spec_names");
  json.begin_list();
  json.end_list();
  json.end_object();
  add(line);
}

call_trace::start_note call_trace::start_of(std::string_view instance, std::span<const cache_key> keys) {
  std::string line;
  json_writer json(line);
  begin_line(json, "StartWriteCache", next_number_.fetch_add(1, std::memory_order_relaxed), instance, unix_us());
  write_keys(json, keys);
  return [this, line = std::move(line)](std::string_view session) {
    std::string whole = line + R"(,"write_session_id":)";
    append_json_text(whole, session);
    whole.push_back('}');
    add(whole);
  };
}

std::function<void()> call_trace::finish_of(const meta::FinishWriteCacheRequest& request) {
  std::string line;
  json_writer json(line);
  begin_line(json, "FinishWriteCache", next_number_.fetch_add(1, std::memory_order_relaxed), request.instance_id(),
             unix_us());
  json.name("write_session_id");
  json.text(request.write_session_id());
  json.name("success_block");
  if (request.success_blocks().has_bool_masks()) {
    json.begin_list();
    for (const bool each : request.success_blocks().bool_masks().values()) json.boolean(each);
    json.end_list();
  } else {
    json.signed_number(request.success_blocks().offset());
  }
  json.end_object();
  return [this, line = std::move(line)] { add(line); };
}

void call_trace::add(std::string_view line) {
  const std::lock_guard lock(mutex_);
  if (waiting_.size() + line.size() + 1 > most_waiting_bytes) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  waiting_.append(line).push_back('\n');
  arrival_.notify_one();
}

void call_trace::run() {
  std::string lines;
  std::unique_lock lock(mutex_);
  for (;;) {
    arrival_.wait(lock, [this] { return is_stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    lines.clear();
    lines.swap(waiting_);
    lock.unlock();
    write(lines);
    lock.lock();
  }
}

/// Whole lines. Those that a full disk does not take are counted, and the rest is tried with the next ones.
void call_trace::write(std::string_view lines) {
  if (file_bytes_ != 0 && file_bytes_ + lines.size() > most_file_bytes_) rotate();
  const std::string_view all = lines;
  while (!lines.empty()) {
    const ssize_t written = ::write(file_.get(), lines.data(), lines.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) break;
    file_bytes_ += static_cast<std::uint64_t>(written);
    lines.remove_prefix(static_cast<std::size_t>(written));
  }
  if (lines.empty()) return;
  const auto count = static_cast<std::uint64_t>(std::ranges::count(lines, '\n'));
  if (dropped_.fetch_add(count, std::memory_order_relaxed) == 0) {
    log_warn(logger("manager"), "the trace file takes no more lines; they are counted", {{"path", path_}});
  }
  if (lines.size() != all.size()) (void)!::write(file_.get(), "\n", 1);  // so that a part of a line spoils no other
}

void call_trace::rotate() {
  for (int i = kept_files - 1; i > 0; --i) {
    const std::string earlier = i == 1 ? path_ : path_ + "." + std::to_string(i - 1);
    (void)std::rename(earlier.c_str(), (path_ + "." + std::to_string(i)).c_str());
  }
  auto next = open_file(path_);
  if (!next) return;  // the old file takes the lines, under its new name
  file_ = std::move(next->first);
  file_bytes_ = next->second;
}

}  // namespace cenote::manager
