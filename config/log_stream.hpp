// The descriptor of the log.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/unique_fd.hpp"

namespace cenote::config {

/// Writes lines to a descriptor that others read, and never waits for them for longer than `patience`: a pager that was
/// stopped, a terminal after Ctrl-S or a log driver that hangs would else stop the program. Once a reader has used up
/// that time, lines are dropped without waiting until it reads again. The descriptor's own flags stay as they are,
/// since other processes share them. Not thread-safe.
class log_stream {
 public:
  static constexpr int patience = 20;  ///< milliseconds

  /// Of a descriptor that stays open.
  explicit log_stream(int descriptor);

  /// Writes the line, or drops it whole; a line that was begun is ended before the next one.
  void write(std::string_view line);
  /// True when a line would be written now.
  [[nodiscard]] bool is_open();
  /// Lines so far.
  [[nodiscard]] std::uint64_t dropped() const noexcept { return dropped_; }

 private:
  enum class descriptor_kind : std::uint8_t {
    plain,       ///< a file, which needs no reader
    reopened,    ///< through a description of its own that does not block
    socket,      ///< has a flag for each call
    descriptor,  ///< a pipe or terminal of another user: asked before each write
  };

  [[nodiscard]] long write_some(std::string_view bytes) const;
  [[nodiscard]] bool has_room(int milliseconds) const;
  bool drain_rest();
  bool drain(std::string_view& rest);

  int descriptor_;
  unique_fd description_;
  descriptor_kind kind_ = descriptor_kind::plain;
  bool is_stuck_ = false;
  std::string rest_;  ///< of a line that was begun
  std::uint64_t dropped_ = 0;
};

}  // namespace cenote::config
