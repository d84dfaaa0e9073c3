// The recorded requests that `cenote optimize` reads, as its options describe them.
#pragma once

#include <cstdint>
#include <string>

#include "commands/replay/streamed_trace.hpp"
#include "commands/replay/trace.hpp"
#include "core/error.hpp"

namespace CLI {
class App;
}

namespace cenote::optimize {

struct trace_options {
  std::string path;
  std::string format = "auto";
  std::uint64_t block_tokens = 0;  ///< 0: those of the format
  std::string unit = "auto";
  bool allow_left_out = false;
  bool full_blocks = true;       ///< no option: a command that wants all blocks clears it
  bool merge_instances = false;  ///< equal keys of different instances are equal blocks

  void add_to(CLI::App& command);
  /// The same without the trace itself.
  void add_reading_to(CLI::App& command);

  /// The trace, in full blocks unless a command wants all; a warning for each kind of strange line is printed. Errors
  /// as read_trace_file().
  [[nodiscard]] result<read_trace> read() const;
  /// Hands the requests on instead, in memory of a fixed size. Errors as replay::stream_trace_file().
  [[nodiscard]] result<replay::streamed_trace> stream(const replay::chain_listener& listener) const;
  /// The same without the warnings, which were printed before.
  [[nodiscard]] result<replay::streamed_trace> stream_again(const replay::chain_listener& listener) const;

 private:
  [[nodiscard]] trace_reading reading() const;
};

}  // namespace cenote::optimize
