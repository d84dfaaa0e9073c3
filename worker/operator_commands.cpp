#include "worker/operator_commands.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "actors/ask.hpp"
#include "actors/request_recording.hpp"
#include "config/logging.hpp"
#include "core/text.hpp"
#include "worker/recorded_json.hpp"

namespace cenote {

using nlohmann::json;

operator_commands::operator_commands(server_context& context, const current_config& config,
                                     const std::shared_ptr<local::event_loop>& sockets, shared_reports& reports,
                                     attachments& sessions, std::function<node_facts(const report_ptr&)> facts)
    : context_(context),
      config_(config),
      sockets_(sockets),
      reports_(reports),
      sessions_(sessions),
      facts_(std::move(facts)) {}

const operator_commands::command* operator_commands::find(std::string_view name) {
  static constexpr std::array table{
      command{"status", true, &operator_commands::status},
      command{"stats", true, &operator_commands::status},
      command{"clear", false, &operator_commands::clear},
      command{"corrupt", false, &operator_commands::corrupt},
      command{"session_kill", false, &operator_commands::kill_session},
      command{"upgrade", false, &operator_commands::upgrade},
      command{"log_level", false, &operator_commands::set_log_level},
      command{"record", false, &operator_commands::record},
      command{"record_end", false, &operator_commands::end_record},
      command{"partition", false, &operator_commands::partition},
      command{"heal", false, &operator_commands::heal},
      command{"drain", false, &operator_commands::drain},
      command{"rejoin", false, &operator_commands::rejoin},
      command{"write_off", false, &operator_commands::write_off},
  };
  const auto* found = std::ranges::find(table, name, &command::name);
  return found == table.end() ? nullptr : found;
}

result<operator_commands::answer> operator_commands::run(const admin_request& request, const caller& client) {
  const command* asked = find(request.command);
  if (asked != nullptr && asked->for_clients) {
    if (!client.may_see) return fail(error_code::permission_denied, "you may not see the status");
  } else if (!client.may_administrate) {
    return fail(error_code::permission_denied,
                "`" + printable(request.command) + "` is for the daemon's user, root, or members of auth.admin_gid");
  }
  if (asked == nullptr) {
    return fail(error_code::invalid_argument, "unknown command `" + printable(request.command) + "`");
  }
  return (this->*asked->run)(request, client);
}

result<operator_commands::answer> operator_commands::status(const admin_request& /*request*/, const caller& client) {
  const auto reader = client.may_administrate ? status_reader::administrator() : status_reader::user(client.uid);
  reports_.want([this, reader, reply = client.defer()](const result<report_ptr>& report) {
    if (!report) return reply(std::unexpected(report.error()));
    if (rendered_turn_ != reports_.turn()) rendered_.clear();
    rendered_turn_ = reports_.turn();
    const auto [text, is_new] = rendered_.try_emplace(reader);
    if (is_new) text->second = status_json(facts_(*report), reader);
    reply(text->second);
  });
  return std::nullopt;
}

namespace {

/// Answers an operator with how many it was, on the loop's thread, if that is still there.
auto count_reply(operator_commands::reply to, const char* what, std::weak_ptr<local::event_loop> loop) {
  return [to = std::move(to), what, loop = std::move(loop)](const result<outcome>& counted) {
    const auto count = counted ? counted->get() : std::unexpected(counted.error());
    result<std::string> text =
        count ? result<std::string>(json({{what, *count}}).dump()) : std::unexpected(count.error());
    if (const auto still = loop.lock()) still->post([to, text = std::move(text)] { to(text); });
  };
}

}  // namespace

/// Asks an actor for something that may take long, and answers with how many it was: nobody else waits for it.
template <class Actor, class... Arguments>
void operator_commands::ask_count(reply to, const char* what, const Actor& whom, Arguments... arguments) {
  ask_then<outcome>(
      context_.system, [] { return true; }, count_reply(std::move(to), what, sockets_), whom, std::move(arguments)...);
}

result<operator_commands::answer> operator_commands::clear(const admin_request& request, const caller& client) {
  if (request.all == request.instance.has_value() || (request.instance && request.instance->empty())) {
    return fail(error_code::invalid_argument, "clear needs either an `instance`, or `all`");
  }
  ask_count(client.defer(), "cleared", context_.dram, clear_atom_v, request.instance.value_or(std::string()));
  return std::nullopt;
}

result<operator_commands::answer> operator_commands::corrupt(const admin_request& /*request*/, const caller& client) {
  if (!config_.get()->debug.enabled) {
    return fail(error_code::permission_denied, "this node alters no blocks: it runs without debug.enabled=true");
  }
  ask_count(client.defer(), "altered", context_.dram, corrupt_atom_v);
  return std::nullopt;
}

/// What an operator of a cluster under test may ask for.
result<void> operator_commands::may_cut() const {
  if (!config_.get()->debug.enabled)
    return fail(error_code::permission_denied, "this node cuts no links: it runs without debug.enabled=true");
  if (!context_.cluster) return fail(error_code::invalid_argument, "this node is alone: it has no cluster.name");
  return {};
}

void operator_commands::order_partition(reply to, partition_order order) {
  ask_count(std::move(to), "partitions", context_.cluster, partition_atom_v,
            partition_order_ptr(std::make_shared<const partition_order>(std::move(order))));
}

/// Frames from `from` do not arrive at `to`; this node is one of the two.
result<operator_commands::answer> operator_commands::partition(const admin_request& request, const caller& client) {
  if (auto allowed = may_cut(); !allowed) return std::unexpected(allowed.error());
  const std::string& own = config_.get()->cluster.name;
  if (!request.from || !request.to || (*request.from != own && *request.to != own)) {
    return fail(error_code::invalid_argument,
                "partition needs `from` and `to`, names of nodes, one of them this one's: " + own);
  }
  const bool is_sender = *request.from == own;
  order_partition(client.defer(), {.other = is_sender ? *request.to : *request.from,
                                   .drops_sent = is_sender || request.both,
                                   .drops_heard = !is_sender || request.both});
  return std::nullopt;
}

result<operator_commands::answer> operator_commands::heal(const admin_request& /*request*/, const caller& client) {
  if (auto allowed = may_cut(); !allowed) return std::unexpected(allowed.error());
  order_partition(client.defer(), {});
  return std::nullopt;
}

result<void> operator_commands::has_pool() const {
  const auto& backends = config_.get()->remote.backends;
  if (context_.cluster && std::ranges::find(backends, "peers") != backends.end()) return {};
  return fail(error_code::invalid_argument,
              "this node gives no blocks to others: see cluster.name and remote.backends");
}

/// First nothing belongs here any more, so that blocks have next homes; then they are offered to those.
result<operator_commands::answer> operator_commands::drain(const admin_request& request, const caller& client) {
  constexpr std::uint64_t usual_s = 30;
  constexpr std::uint64_t most_s = 3600;
  if (auto pooled = has_pool(); !pooled) return std::unexpected(pooled.error());
  const caf::timespan limit = std::chrono::seconds(std::min(request.id.value_or(usual_s), most_s));
  const auto answer_with = count_reply(client.defer(), "handed_on", sockets_);
  ask_then<outcome>(
      context_.system, [] { return true; },
      [answer_with, limit, dram = context_.dram, &system = context_.system](const result<outcome>& weighed) {
        if (!weighed || !weighed->get()) return answer_with(weighed);
        ask_then<outcome>(
            system, [] { return true; }, answer_with, dram, hand_on_atom_v, limit);
      },
      context_.cluster, weigh_atom_v, false);
  return std::nullopt;
}

result<operator_commands::answer> operator_commands::rejoin(const admin_request& /*request*/, const caller& client) {
  if (auto pooled = has_pool(); !pooled) return std::unexpected(pooled.error());
  ask_count(client.defer(), "weight", context_.cluster, weigh_atom_v, true);
  return std::nullopt;
}

/// The network's thread knows which nodes are here and which removals wait for them.
result<operator_commands::answer> operator_commands::write_off(const admin_request& request, const caller& client) {
  if (auto pooled = has_pool(); !pooled) return std::unexpected(pooled.error());
  if (!request.node || request.node->empty())
    return fail(error_code::invalid_argument, "write_off needs the name of a node as `node`");
  const auto respond = count_reply(client.defer(), "released", sockets_);
  context_.blocks->post_early([respond, blocks = context_.blocks.get(), node = *request.node] {
    const auto released = blocks->write_off(node);
    respond(released ? outcome{error_code::ok, {}, *released}
                     : outcome{released.error().code(), released.error().message(), 0});
  });
  return std::nullopt;
}

result<operator_commands::answer> operator_commands::kill_session(const admin_request& request,
                                                                  const caller& /*from*/) {
  if (!request.id) return fail(error_code::invalid_argument, "session_kill needs a number as `id`");
  if (auto killed = sessions_.kill(*request.id); !killed) return std::unexpected(killed.error());
  return json({{"killed", *request.id}}).dump();
}

result<operator_commands::answer> operator_commands::upgrade(const admin_request& /*request*/, const caller& /*from*/) {
  if (auto asked = context_.keeper.ask_upgrade(); !asked) return std::unexpected(asked.error());
  return json({{"upgrading", true}}).dump();
}

/// Begins a recording of requests, or has those since the last answer. The tier hands on those of all policies for
/// longer than the recording waits for a question, so that none is missed while it goes on.
result<operator_commands::answer> operator_commands::record(const admin_request& request, const caller& client) {
  if (!context_.curves) {
    return fail(error_code::invalid_argument, "this node watches no requests: optimize.mode is off");
  }
  caf::anon_send(context_.dram, record_atom_v, caf::timespan(2 * request_recording::patience));
  const auto started =
      static_cast<std::uint64_t>(std::chrono::nanoseconds(context_.node_started.time_since_epoch()).count());
  const auto respond = [reply = client.defer(), loop = sockets_, started](const result<recorded_ptr>& recorded) {
    auto text = recorded ? recorded_json(**recorded, started) : std::unexpected(recorded.error());
    if (const auto still = loop.lock()) still->post([reply, text = std::move(text)] { reply(text); });
  };
  const auto ask_for = [&](auto... number) {
    ask_then<recorded_ptr>(
        context_.system, [] { return true; }, respond, context_.curves, record_atom_v, number...);
  };
  request.id ? ask_for(*request.id) : ask_for();
  return std::nullopt;
}

result<operator_commands::answer> operator_commands::end_record(const admin_request& request, const caller& /*from*/) {
  if (!request.id) return fail(error_code::invalid_argument, "record_end needs a number as `id`");
  if (context_.curves) caf::anon_send(context_.curves, end_record_atom_v, *request.id);
  return json({{"ended", *request.id}}).dump();
}

result<operator_commands::answer> operator_commands::set_log_level(const admin_request& request,
                                                                   const caller& /*from*/) {
  if (!request.level) return fail(error_code::invalid_argument, "log_level needs a `level`, such as info");
  if (auto set = set_levels(*request.level); !set) return std::unexpected(set.error());
  return json({{"level", *request.level}}).dump();
}

}  // namespace cenote
