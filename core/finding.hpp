// The outcome of a look at a machine, or at a place that a configuration names.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "core/error.hpp"

namespace cenote {

/// One thing that was looked at.
struct finding {
  enum class level { ok, unknown, warn, fail } severity = level::ok;
  std::string subject;
  std::string state;        ///< "64 KiB", "7000 is in use"
  std::string remedy = {};  ///< what to change, if something should change; a failure's is a whole sentence
  std::string key = {};     ///< of the configuration, which can end a failure, or in whose way another process is
};

/// A failure of `key`, which its sentence begins with.
[[nodiscard]] inline finding failure_of(std::string_view key, std::string subject, std::string state,
                                        const error& failure) {
  const bool is_named = failure.message().starts_with(key);
  return {finding::level::fail, std::move(subject), std::move(state),
          is_named ? failure.message() : failure.in(key).message(), std::string(key)};
}

/// A failure of `key`, or that all is well.
[[nodiscard]] inline finding finding_of(std::string_view key, std::string subject, std::string state,
                                        const result<void>& outcome) {
  if (!outcome) return failure_of(key, std::move(subject), std::move(state), outcome.error());
  return {finding::level::ok, std::move(subject), std::move(state)};
}

}  // namespace cenote
