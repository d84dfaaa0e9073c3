#include "config/logging.hpp"

#include <spdlog/sinks/stdout_sinks.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "config/level_spec.hpp"

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

/// All loggers of the process, and what they share. Thread-safe.
class registry {
 public:
  registry() : sink_(std::make_shared<spdlog::sinks::stderr_sink_mt>()) {
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

  void set_format(config::log_format format) { sink_->set_formatter(make_formatter(resolved(format))); }

 private:
  const std::shared_ptr<spdlog::sinks::stderr_sink_mt> sink_;
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
