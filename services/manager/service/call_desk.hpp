// All calls of a manager, for one thread of a transport.
#pragma once

#include <string_view>

#include "services/manager/service/admin_calls.hpp"
#include "services/manager/service/meta_calls.hpp"

namespace cenote::manager {

struct call_settings {
  call_limits limits{};
  read_choice choice = read_choice::weighted;
  manager_identity identity{};
};

/// Answers the calls of a face, on one thread at a time. The writer, the desk for access and the settings outlive it.
class call_desk {
 public:
  call_desk(manager_writer& writer, access_desk& access, const call_settings& settings)
      : views_(writer.views()),
        access_(access),
        meta_(writer, settings.limits, settings.choice),
        admin_(writer, access, settings.identity) {}

  /// Answers a caller that was let in. Errors: the body was not understood; then nothing is answered. What is read is
  /// answered before it returns.
  [[nodiscard]] std::expected<void, body_fault> call(const rpc_row& row, answer_form form, std::string_view body,
                                                     const call_access& access, answer_receiver receive);
  /// The accounts, and what else the manager is set up with.
  [[nodiscard]] const manager_registry& registry() { return views_.view()->settings; }
  [[nodiscard]] bool is_healthy() { return admin_.is_healthy(); }

 private:
  view_reader views_;
  access_desk& access_;
  meta_calls meta_;
  admin_calls admin_;
};

}  // namespace cenote::manager
