// The way to a plug-in, the program that serves a type of storages.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "core/error.hpp"

namespace cenote::manager {

using plugin_time = std::chrono::steady_clock::time_point;

/// A plug-in that runs. One thread uses it.
class plugin_channel {
 public:
  plugin_channel() = default;
  plugin_channel(const plugin_channel&) = delete;
  plugin_channel& operator=(const plugin_channel&) = delete;
  virtual ~plugin_channel() = default;

  /// Sends a line, and waits for the one that answers it, without its end. After an error it answers nothing sound any
  /// more. Errors: deadline_exceeded; malformed (too long, or more than one line); not_running (it has ended); closed
  /// (cancelled).
  [[nodiscard]] virtual result<std::string> ask(std::string_view line, plugin_time deadline) = 0;
};

/// Starts a plug-in as often as is needed. One thread uses it.
class plugin_launcher {
 public:
  plugin_launcher() = default;
  plugin_launcher(const plugin_launcher&) = delete;
  plugin_launcher& operator=(const plugin_launcher&) = delete;
  virtual ~plugin_launcher() = default;

  /// Errors: invalid_config (there is no such program), system. The channel must not outlive this.
  [[nodiscard]] virtual result<std::unique_ptr<plugin_channel>> start() = 0;
  /// Ends what waits in a channel, and all that will. Thread-safe.
  virtual void cancel() noexcept = 0;
};

}  // namespace cenote::manager
