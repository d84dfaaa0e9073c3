// What an operator may ask of a running node over its socket.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/error.hpp"
#include "worker/admin_request.hpp"
#include "worker/attachments.hpp"
#include "worker/node_facts.hpp"
#include "worker/server_context.hpp"
#include "worker/shared_reports.hpp"
#include "worker/status_json.hpp"

namespace cenote {

/// A table from a command's name to the function that runs it. All on the socket loop's thread.
class operator_commands {
 public:
  using reply = std::function<void(const result<std::string>&)>;
  struct caller {
    std::uint32_t uid = 0;
    bool may_see = false;  ///< what a client may ask, too
    bool may_administrate = false;
    /// Has the connection wait; the reply is called once, later, on the loop's thread.
    std::function<reply()> defer;
  };
  /// The text of an answer; empty when it is given later.
  using answer = std::optional<std::string>;

  /// What is given by reference outlives this; `facts` says what `status` shows of a report.
  operator_commands(server_context& context, const current_config& config,
                    const std::shared_ptr<local::event_loop>& sockets, shared_reports& reports, attachments& sessions,
                    std::function<node_facts(const report_ptr&)> facts);

  result<answer> run(const admin_request& request, const caller& client);

 private:
  struct command {
    std::string_view name;
    bool for_clients;
    result<answer> (operator_commands::*run)(const admin_request&, const caller&);
  };
  [[nodiscard]] static const command* find(std::string_view name);

  result<answer> status(const admin_request& request, const caller& client);
  result<answer> clear(const admin_request& request, const caller& client);
  result<answer> corrupt(const admin_request& request, const caller& client);
  result<answer> partition(const admin_request& request, const caller& client);
  result<answer> heal(const admin_request& request, const caller& client);
  [[nodiscard]] result<void> may_cut() const;
  void order_partition(reply to, partition_order order);
  result<answer> drain(const admin_request& request, const caller& client);
  result<answer> rejoin(const admin_request& request, const caller& client);
  result<answer> write_off(const admin_request& request, const caller& client);
  [[nodiscard]] result<void> has_pool() const;
  result<answer> kill_session(const admin_request& request, const caller& client);
  result<answer> upgrade(const admin_request& request, const caller& client);
  result<answer> record(const admin_request& request, const caller& client);
  result<answer> end_record(const admin_request& request, const caller& client);
  result<answer> set_log_level(const admin_request& request, const caller& client);
  template <class Actor, class... Arguments>
  void ask_count(reply to, const char* what, const Actor& whom, Arguments... arguments);

  server_context& context_;
  const current_config& config_;
  std::weak_ptr<local::event_loop> sockets_;  // an answer may come when server and loop are gone
  shared_reports& reports_;
  attachments& sessions_;
  std::function<node_facts(const report_ptr&)> facts_;
  std::uint64_t rendered_turn_ = 0;                ///< of the report that rendered_ was made from
  std::map<status_reader, std::string> rendered_;  ///< by its reader
};

}  // namespace cenote
