#include "services/manager/writes/fault_points.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>

#include "transport/manager/rpc_table.hpp"

namespace cenote::manager {

namespace {

/// Calls of DebugService have no faults: they take them away.
bool is_faulty_call(const rpc_row& row, std::string_view name) {
  return row.name == name && row.service != rpc_service::debug;
}

result<> check_name(std::string_view name) {
  if (enum_named<fault_point>(name)) return {};
  if (std::ranges::any_of(rpc_rows, [&](const rpc_row& row) { return is_faulty_call(row, name); })) return {};
  return fail(error_code::invalid_argument,
              "`" + std::string(name.substr(0, 64)) + "` is no point and no call; right would be a call such as " +
                  std::string(rpc_rows.front().name) + ", or one of " + std::string(enum_names<fault_point>));
}

}  // namespace

result<> fault_table::inject(std::string_view name, const injected_fault& fault) {
  if (auto checked = check_name(name); !checked) return checked;
  const std::lock_guard lock(mutex_);
  faults_.insert_or_assign(std::string(name), armed_fault{.terms = fault});
  return {};
}

result<> fault_table::inject_kill(std::string_view text) {
  injected_fault fault{.kind = fault_kind::kill, .repetition = fault_repetition::once};
  const auto colon = text.find(':');
  if (colon != std::string_view::npos) {
    const char* const end = text.data() + text.size();
    const auto read = std::from_chars(text.data() + colon + 1, end, fault.first);
    if (read.ec != std::errc() || read.ptr != end || fault.first == 0) {
      return fail(error_code::invalid_argument,
                  "`" + std::string(text) + "` has no passing behind the colon; right would be point:3");
    }
  }
  return inject(text.substr(0, colon), fault);
}

result<> fault_table::remove(std::string_view name) {
  if (auto checked = check_name(name); !checked) return checked;
  const std::lock_guard lock(mutex_);
  if (const auto armed = faults_.find(name); armed != faults_.end()) faults_.erase(armed);
  return {};
}

void fault_table::clear() {
  const std::lock_guard lock(mutex_);
  faults_.clear();
}

result<> fault_table::pass(std::string_view name) {
  const std::lock_guard lock(mutex_);
  const auto armed = faults_.find(name);
  if (armed == faults_.end()) return {};
  const injected_fault terms = armed->second.terms;
  if (++armed->second.passings < terms.first) return {};
  if (terms.kind == fault_kind::kill) ::kill(::getpid(), SIGKILL);
  if (terms.repetition == fault_repetition::once) faults_.erase(armed);
  return fail(error_code::system, "a fault was injected at " + std::string(name));
}

}  // namespace cenote::manager
