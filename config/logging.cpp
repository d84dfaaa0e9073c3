#include "config/logging.hpp"

#include <spdlog/sinks/base_sink.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "config/level_spec.hpp"
#include "config/log_stream.hpp"

namespace cenote {
namespace {

config::log_format resolved(config::log_format format) {
  if (format != config::log_format::automatic) return format;
  return is_journal(STDERR_FILENO, std::getenv("JOURNAL_STREAM")) ? config::log_format::journal
                                                                  : config::log_format::text;
}

spdlog::level::level_enum to_spdlog(config::log_level level) {
  switch (level) {
    case config::log_level::trace: return spdlog::level::trace;
    case config::log_level::debug: return spdlog::level::debug;
    case config::log_level::info: return spdlog::level::info;
    case config::log_level::warn: return spdlog::level::warn;
    case config::log_level::error: return spdlog::level::err;
    case config::log_level::off: return spdlog::level::off;
  }
  return spdlog::level::info;
}

/// Lines to stderr, as long as it is read. Thread-safe.
class stream_sink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  [[nodiscard]] std::uint64_t dropped() const noexcept { return dropped_.load(std::memory_order_relaxed); }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (stream_.dropped() > reported_ && stream_.is_open()) {
      const auto lines = stream_.dropped() - std::exchange(reported_, stream_.dropped());
      const auto payload = encode_payload("lines are missing here: nobody read the log", {{"lines", lines}});
      write({"log", spdlog::level::warn, payload});
    }
    write(message);
    dropped_.store(stream_.dropped(), std::memory_order_relaxed);
  }
  void flush_() override {}

 private:
  void write(const spdlog::details::log_msg& message) {
    line_.clear();
    formatter_->format(message, line_);
    stream_.write({line_.data(), line_.size()});
  }

  config::log_stream stream_{STDERR_FILENO};
  spdlog::memory_buf_t line_;
  std::uint64_t reported_ = 0;
  std::atomic<std::uint64_t> dropped_ = 0;
};

/// All loggers of the process, and what they share. Thread-safe.
class registry {
 public:
  registry() : sink_(std::make_shared<stream_sink>()) {
    sink_->set_formatter(make_formatter(resolved(config::log_format::automatic)));
  }

  std::shared_ptr<spdlog::logger> get(std::string_view component) {
    const std::lock_guard lock(mutex_);
    const auto found = loggers_.find(component);
    if (found != loggers_.end()) return found->second;
    auto made = std::make_shared<spdlog::logger>(std::string(component), sink_);
    made->set_level(to_spdlog(levels_.of(component)));
    loggers_.emplace(component, made);
    return made;
  }

  void set_levels(config::level_spec levels) {
    const std::lock_guard lock(mutex_);
    levels_ = std::move(levels);
    for (const auto& [component, log] : loggers_) log->set_level(to_spdlog(levels_.of(component)));
  }

  [[nodiscard]] std::uint64_t dropped() const noexcept { return sink_->dropped(); }

  void set_format(config::log_format format) { sink_->set_formatter(make_formatter(resolved(format))); }

 private:
  const std::shared_ptr<stream_sink> sink_;
  std::mutex mutex_;
  config::level_spec levels_;
  std::map<std::string, std::shared_ptr<spdlog::logger>, std::less<>> loggers_;
};

registry& the_registry() {
  // Never destroyed: threads and destructors of static objects may log until the very end.
  static auto& instance = *new registry;
  return instance;
}

}  // namespace

std::shared_ptr<spdlog::logger> logger(std::string_view component) {
  return the_registry().get(component);
}

std::uint64_t dropped_log_lines() noexcept {
  return the_registry().dropped();
}

result<> init_logging(std::string_view level_spec, config::log_format format) {
  if (auto set = set_levels(level_spec); !set) return set;
  the_registry().set_format(format);
  return {};
}

result<> set_levels(std::string_view level_spec) {
  auto levels = config::parse_level_spec(level_spec);
  if (!levels) return std::unexpected(levels.error());
  the_registry().set_levels(std::move(*levels));
  return {};
}

bool is_journal(int fd, const char* journal_stream) {
  if (journal_stream == nullptr) return false;
  const char* const end = journal_stream + std::strlen(journal_stream);
  dev_t device = 0;
  ino_t inode = 0;
  const auto [colon, device_error] = std::from_chars(journal_stream, end, device);
  if (device_error != std::errc{} || colon == end || *colon != ':') return false;
  const auto [rest, inode_error] = std::from_chars(colon + 1, end, inode);
  if (inode_error != std::errc{} || rest != end) return false;
  struct stat status {};
  return ::fstat(fd, &status) == 0 && status.st_dev == device && status.st_ino == inode;
}

}  // namespace cenote
