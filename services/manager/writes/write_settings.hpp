// Times of write sessions.
#pragma once

#include <chrono>

namespace cenote::manager {

struct write_settings {
  std::chrono::seconds write_timeout{30};         ///< of a session that names none
  std::chrono::seconds max_write_timeout{1'800};  ///< longer ones are cut
  std::chrono::milliseconds quarantine{60'000};   ///< until what a session gave up is deleted once more
};

}  // namespace cenote::manager
