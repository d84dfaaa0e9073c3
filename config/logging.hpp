// The program's one logger: a component's name, a level that can change at run time, and lines with fields,
// to stderr.
//
//   const auto log = logger("keeper");
//   log_info(log, "worker is ready", {{"pid", pid}, {"took_ms", took}});
#pragma once

#include <spdlog/logger.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string_view>

#include "config/log_formatter.hpp"
#include "config/node_config.hpp"
#include "core/error.hpp"

namespace cenote {

/// The component's logger, always the same one; made at the first call. Usable before init_logging (info,
/// automatic format) and until the process ends. Thread-safe.
[[nodiscard]] std::shared_ptr<spdlog::logger> logger(std::string_view component);

/// Sets levels and format of all loggers, those in use included. Fails with invalid_config on a bad level.
/// Thread-safe.
result<> init_logging(std::string_view level_spec, config::log_format format);

/// Sets levels alone, for SIGHUP. On failure (invalid_config) nothing changes. Thread-safe.
result<> set_levels(std::string_view level_spec);

/// Lines that were dropped for want of a reader. Thread-safe.
[[nodiscard]] std::uint64_t dropped_log_lines() noexcept;

/// True if `fd` is the stream to the journal that systemd announced as `journal_stream` ("device:inode", the
/// value of $JOURNAL_STREAM; null or empty: none).
[[nodiscard]] bool is_journal(int fd, const char* journal_stream);

/// One event. Costs one atomic load when the level is off. Thread-safe.
inline void log_at(spdlog::level::level_enum level, const std::shared_ptr<spdlog::logger>& log,
                   std::string_view message, std::initializer_list<log_field> fields) {
  if (log->should_log(level)) log->log(level, encode_payload(message, fields));
}

inline void log_trace(const std::shared_ptr<spdlog::logger>& log, std::string_view message,
                      std::initializer_list<log_field> fields = {}) {
  log_at(spdlog::level::trace, log, message, fields);
}

inline void log_debug(const std::shared_ptr<spdlog::logger>& log, std::string_view message,
                      std::initializer_list<log_field> fields = {}) {
  log_at(spdlog::level::debug, log, message, fields);
}

inline void log_info(const std::shared_ptr<spdlog::logger>& log, std::string_view message,
                     std::initializer_list<log_field> fields = {}) {
  log_at(spdlog::level::info, log, message, fields);
}

inline void log_warn(const std::shared_ptr<spdlog::logger>& log, std::string_view message,
                     std::initializer_list<log_field> fields = {}) {
  log_at(spdlog::level::warn, log, message, fields);
}

inline void log_error(const std::shared_ptr<spdlog::logger>& log, std::string_view message,
                      std::initializer_list<log_field> fields = {}) {
  log_at(spdlog::level::err, log, message, fields);
}

}  // namespace cenote
