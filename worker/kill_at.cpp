#include "worker/kill_at.hpp"

#include <unistd.h>

#include <atomic>
#include <charconv>
#include <csignal>
#include <string>
#include <string_view>

#include "config/logging.hpp"
#include "memory/store_point.hpp"

namespace cenote {

namespace {

// A hook is a plain function: what it looks for has no other place.
std::string deadly_point;
std::atomic<std::uint64_t> passings_left{0};
bool stands_still = false;

void on_point(store_point point) noexcept {
  if (point.name() != deadly_point || passings_left.fetch_sub(1, std::memory_order_relaxed) != 1) return;
  while (stands_still) ::pause();
  ::kill(::getpid(), SIGKILL);
}

}  // namespace

void install_kill(const config::debug_section& debug, std::uint64_t epoch) {
  if (!debug.enabled || epoch == 0 || epoch > debug.kill_at.size()) return;
  std::string wanted = debug.kill_at[epoch - 1];
  constexpr std::string_view hang = ":hang";
  stands_still = wanted.ends_with(hang);
  if (stands_still) wanted.resize(wanted.size() - hang.size());
  const auto colon = wanted.find(':');
  std::uint64_t passing = 1;
  if (colon != std::string::npos) std::from_chars(wanted.data() + colon + 1, wanted.data() + wanted.size(), passing);
  deadly_point = wanted.substr(0, colon);
  passings_left.store(passing, std::memory_order_relaxed);
  if (deadly_point.empty() || passing == 0) return;
  log_warn(logger("worker"), stands_still ? "will hang" : "will be killed",
           {{"point", deadly_point}, {"passing", passing}});
  memory::install_store_hook(&on_point);
}

}  // namespace cenote
