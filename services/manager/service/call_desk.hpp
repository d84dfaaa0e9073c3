// All calls of a manager, for one thread of a transport.
#pragma once

#include <string>
#include <string_view>

#include "services/manager/service/admin_calls.hpp"
#include "services/manager/service/call_counts.hpp"
#include "services/manager/service/call_log.hpp"
#include "services/manager/service/call_trace.hpp"
#include "services/manager/service/debug_calls.hpp"
#include "services/manager/service/meta_calls.hpp"

namespace cenote::manager {

struct call_settings {
  call_limits limits{};
  read_choice choice = read_choice::weighted;
  manager_identity identity{};
};

/// The parts that all faces of a manager share; everything outlives them.
struct face_parts {
  manager_writer& writer;
  access_desk& access;
  call_counts& counts;
  call_log& log;
  call_trace* trace = nullptr;  ///< null: calls are not written down
  const call_settings& settings;
  fault_table* faults = nullptr;  ///< null: none can be injected
};

/// Answers the calls of a face, on one thread at a time.
class call_desk {
 public:
  explicit call_desk(const face_parts& parts)
      : parts_(parts),
        views_(parts.writer.views()),
        meta_(parts.writer, parts.settings.limits, parts.settings.choice, parts.counts, parts.trace),
        admin_(parts.writer, parts.access, parts.counts, parts.trace, parts.settings.identity),
        debug_(parts.faults) {}

  /// Answers a caller that was let in. Errors: the body was not understood; then nothing is answered. What is read is
  /// answered before it returns.
  [[nodiscard]] std::expected<void, body_fault> call(const rpc_row& row, answer_form form, std::string_view body,
                                                     const call_access& access, answer_receiver receive);
  /// The accounts, and what else the manager is set up with.
  [[nodiscard]] const manager_registry& registry() { return views_.view()->settings; }
  [[nodiscard]] bool is_healthy() { return admin_.is_healthy(); }
  [[nodiscard]] call_timer timer_of(const rpc_row& row) const noexcept { return {parts_.counts, row.call}; }
  /// Pages of the admin port.
  [[nodiscard]] std::string metrics_page() { return admin_.metrics().text(); }
  void append_status(std::string& out) { admin_.append_status(out); }

 private:
  [[nodiscard]] std::expected<void, body_fault> pass(const rpc_row& row, const call_body& body,
                                                     const call_access& access, answer_receiver receive);

  const face_parts& parts_;
  view_reader views_;
  meta_calls meta_;
  admin_calls admin_;
  debug_calls debug_;
};

}  // namespace cenote::manager
