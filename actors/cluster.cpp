#include "actors/cluster.hpp"

#include <algorithm>
#include <utility>

#include "config/logging.hpp"

namespace cenote {

namespace {

using cluster::steady_time;

constexpr std::size_t most_refusals = 1024;       // that are remembered
constexpr std::size_t most_refusals_logged = 20;  // in refusals_window
constexpr std::chrono::minutes refusals_window{1};
constexpr std::chrono::seconds rate_window{1};

/// Who says so, in a frame of a link that has not greeted.
std::string sender_in(std::span<const std::byte> bytes) {
  const auto frame = peer::decode_frame(bytes);
  if (!frame) return {};
  if (frame->type == peer::frame_type::hello) {
    const auto hello = peer::decode_hello(frame->body);
    return hello ? hello->who.name : std::string();
  }
  if (frame->type != peer::frame_type::challenge) return {};
  const auto challenge = peer::decode_challenge(frame->body);
  return challenge ? challenge->who.name : std::string();
}

bool is_about_groups(peer::frame_type type) {
  return type >= peer::frame_type::seek_group && type <= peer::frame_type::group_here;
}

}  // namespace

peer::network_events link_events(std::function<void(link_event)> tell) {
  using enum link_event::kind;
  peer::network_events all;
  all.addresses = [tell](const endpoint& name, const result<std::vector<endpoint>>& found) {
    tell({.what = addresses, .name = name, .addresses = found});
  };
  all.opened = [tell](peer::link_id which, bool is_dialled, const endpoint&) {
    tell({.what = opened, .link = which, .is_dialled = is_dialled});
  };
  all.closed = [tell](peer::link_id which, const error& why) { tell({.what = closed, .link = which, .why = why}); };
  all.heard = [tell](peer::link_id from, std::span<const std::byte> frame) {
    tell({.what = heard, .link = from, .frame = std::vector<std::byte>(frame.begin(), frame.end())});
  };
  all.carries_blocks = [tell = std::move(tell)](peer::link_id which) { tell({.what = carries_blocks, .link = which}); };
  return all;
}

cluster_shell::cluster_shell(caf::actor_config& config, on_fatal fatal)
    : cluster_actor::base(config), fatal_(std::move(fatal)) {}

void cluster_shell::on_exit() {
  for (const auto& [name, each] : peers_) anon_send_exit(each, caf::exit_reason::user_shutdown);
  peers_.clear();
  start_.reset();
  early_.clear();
}

cluster_shell::behavior_type cluster_shell::make_behavior() {
  return {
      [this](link_atom, const link_event_ptr& event) {
        if (!members_) return early_.push_back(event);
        take(*event);
        carry_out();
      },
      [this](begin_atom, const cluster_start_ptr& with) { begin(with); },
      [this](look_atom, std::uint64_t number) {
        if (!members_ || !alarm_.take(this, number, start_->clock())) return;
        members_->advance(start_->clock());
        carry_out();
      },
      [this](frame_atom, std::uint64_t link, const node_frame_ptr& frame) {
        if (members_)
          send_frame(link, peer::encode_frame(frame->type, frame->request, members_->self().born, frame->body));
      },
      [this](group_sayings_atom, const group_sayings_ptr& what) { say_for_groups(*what); },
      [this](ping_atom, const std::string& node, const payload_ptr& payload) { return ping(node, payload); },
      [this](partition_atom, const partition_order_ptr& order) { return partition(*order); },
      [this](weigh_atom, bool takes_part) { return weigh(takes_part); },
      [this](leave_atom) {
        if (members_) {
          members_->leave(start_->clock());
          carry_out();
        }
        return outcome{};
      },
      [this](report_atom) { return report(); },
  };
}

void cluster_shell::begin(const cluster_start_ptr& with) {
  start_ = with;
  if (!with->network) return;
  members_.emplace(with->self, with->options, start_->clock());
  members_->advance(start_->clock());
  for (const link_event_ptr& each : std::exchange(early_, {})) take(*each);
  carry_out();
}

void cluster_shell::take(const link_event& event) {
  const auto now = start_->clock();
  switch (event.what) {
    case link_event::kind::opened: members_->opened(event.link, event.is_dialled, now); break;
    case link_event::kind::closed:
      carrying_.erase(event.link);
      members_->closed(event.link, event.why, now);
      break;
    case link_event::kind::heard: heard(event, now); break;
    case link_event::kind::carries_blocks:
      log_debug(logger("cluster"), "a link carries blocks", {{"node", members_->name_on(event.link)}});
      carrying_.insert(event.link);
      tell_pool();
      break;
    case link_event::kind::addresses: members_->take_addresses(event.name, event.addresses, now); break;
  }
}

void cluster_shell::heard(const link_event& event, steady_time now) {
  totals_.heard_bytes += event.frame.size();
  if (drops(event.link, event.frame, false)) return;
  const auto other = members_->heard(event.link, event.frame, now);
  // Of those only who have proved their name.
  const std::string from = members_->name_on(event.link);
  if (members_->link_of(from)) traffic_[from].heard += event.frame.size();
  if (!other) return;
  follow_members();
  if (is_about_groups(other->frame.type)) {
    if (!start_->groups) return;
    const auto body = other->frame.body;
    return send(start_->groups, group_frame_atom_v,
                std::make_shared<const group_frame>(other->from, other->link, other->frame.from, other->frame.type,
                                                    std::vector<std::byte>(body.begin(), body.end())));
  }
  if (other->frame.type >= peer::frame_type::bind) {
    if (start_->blocks)
      start_->blocks->post([to = start_->blocks, link = other->link, type = other->frame.type,
                            request = other->frame.request,
                            body = std::vector<std::byte>(other->frame.body.begin(), other->frame.body.end())] {
        to->heard(link, type, request, body);
      });
    return;
  }
  const auto found = peers_.find(other->from);
  if (found == peers_.end()) return;
  const auto body = other->frame.body;
  send(found->second, frame_atom_v,
       std::make_shared<const node_frame>(other->frame.type, other->frame.request,
                                          std::vector<std::byte>(body.begin(), body.end())));
}

/// Frames of a partition are lost without a word, as on a network that is cut.
bool cluster_shell::drops(peer::link_id link, std::span<const std::byte> frame, bool is_sent) {
  if (partitions_.empty()) return false;
  std::string other = members_->name_on(link);
  if (other.empty() && !is_sent) other = sender_in(frame);
  const auto found = partitions_.find(other);
  if (found == partitions_.end()) return false;
  const bool is_cut = is_sent ? found->second.drops_sent : found->second.drops_heard;
  totals_.cut += is_cut ? 1 : 0;
  return is_cut;
}

void cluster_shell::carry_out() {
  for (cluster::saying& each : members_->take_sayings()) {
    if (const auto* name = std::get_if<cluster::lookup_saying>(&each)) {
      start_->network->look_up(name->name);
    } else if (auto* dial = std::get_if<cluster::dial_saying>(&each)) {
      members_->dialling(dial->where, start_->network->dial(dial->where));
    } else if (auto* say = std::get_if<cluster::frame_saying>(&each)) {
      send_frame(say->to, std::move(say->frame));
    } else if (auto* shut = std::get_if<cluster::close_saying>(&each)) {
      start_->network->close(shut->which, shut->why);
    } else if (auto* join = std::get_if<cluster::join_saying>(&each)) {
      start_->network->join_blocks(join->which, join->where, join->proof);
    } else if (auto* wait = std::get_if<cluster::await_saying>(&each)) {
      start_->network->await_blocks(wait->which, wait->proof);
    }
  }
  for (const cluster::news& each : members_->take_news()) tell(each);
  follow_members();
  look_when_due();
}

void cluster_shell::send_frame(peer::link_id to, std::vector<std::byte> frame) {
  if (drops(to, frame, true)) return;
  totals_.sent_bytes += frame.size();
  if (const std::string name = members_->name_on(to); members_->link_of(name)) traffic_[name].sent += frame.size();
  start_->network->send(to, std::move(frame));
}

/// The alarm is moved only to a sooner time.
void cluster_shell::look_when_due() {
  const auto due = members_->wake_at();
  alarm_.hasten(this, due, start_->clock());
}

/// Each node that there is a link to has an actor, which knows the link.
void cluster_shell::follow_members() {
  if (std::exchange(followed_, members_->revision()) == members_->revision()) return;
  const auto rows = members_->peers();
  std::erase_if(peers_, [&](const auto& each) {
    const bool is_known = std::ranges::any_of(rows, [&](const auto& row) { return row.who.name == each.first; });
    if (is_known) return false;
    anon_send_exit(each.second, caf::exit_reason::user_shutdown);
    links_.erase(each.first);
    traffic_.erase(each.first);
    rates_.erase(each.first);
    return true;
  });
  for (const cluster::peer_row& each : rows) {
    if (each.who.name.empty()) continue;
    const bool is_linked = each.state == cluster::peer_state::live || each.state == cluster::peer_state::suspect;
    const peer::link_id link = is_linked ? each.link : 0;
    if (link == 0 && !peers_.contains(each.who.name)) continue;
    if (auto& known = links_[each.who.name]; known != link) {
      known = link;
      auto& actor = peers_[each.who.name];
      if (!actor) actor = spawn<peer_proxy>(cluster_actor(this), counts_, start_->clock);
      send(actor, link_atom_v, link);
    }
  }
  tell_pool();
  tell_groups();
}

/// Before any frame of a node that is new.
void cluster_shell::tell_groups() {
  if (!start_->groups) return;
  std::vector<cluster::live_node> live;
  for (const cluster::peer_row& each : members_->peers()) {
    if (each.state == cluster::peer_state::live && !each.who.name.empty())
      live.push_back({.name = each.who.name, .born = each.who.born});
  }
  const auto is_same = [](const auto& one, const auto& other) {
    return one.name == other.name && one.born == other.born;
  };
  if (told_groups_ && std::ranges::equal(*told_groups_, live, is_same)) return;
  told_groups_ = live;
  send(start_->groups, group_members_atom_v,
       std::make_shared<const group_members>(caf::actor_cast<caf::strong_actor_ptr>(this), std::move(live)));
}

void cluster_shell::say_for_groups(const group_sayings& what) {
  if (!members_) return;
  for (const cluster::agreement_frame& each : what.frames) {
    const auto frame = peer::encode_frame(each.type, 0, members_->self().born, each.body);
    if (!each.to.empty()) {
      if (const auto link = members_->link_of(each.to)) send_frame(*link, frame);
      continue;
    }
    for (const cluster::live_node& node : told_groups_.value_or(std::vector<cluster::live_node>())) {
      if (const auto link = members_->link_of(node.name)) send_frame(*link, frame);
    }
  }
  if (what.bad_link != 0) start_->network->close(what.bad_link, error(error_code::malformed, what.why));
}

/// Who can be asked for blocks now. Frames about blocks take the same way, so that none comes before its sender is
/// known.
void cluster_shell::tell_pool() {
  if (!start_->blocks) return;
  cluster::pool_members now{
      .self = members_->self().name, .weight = members_->self().weight, .born = members_->self().born, .others = {}};
  for (const cluster::peer_row& each : members_->peers()) {
    if (each.who.name.empty()) continue;
    if (each.state == cluster::peer_state::suspect || each.state == cluster::peer_state::gone)
      now.silent.push_back(each.who.name);
    if (each.state == cluster::peer_state::left) {
      now.stopped.push_back(each.who.name);
      if (each.who.has_drained()) now.drained.push_back(each.who.name);
    }
    if (each.state != cluster::peer_state::live) continue;
    cluster::pool_member one{.name = each.who.name, .weight = each.who.weight, .link = each.link};
    one.key = members_->key_of(each.link);
    if (const auto cut = partitions_.find(one.name); cut != partitions_.end()) {
      one.drops_sent = cut->second.drops_sent;
      one.drops_heard = cut->second.drops_heard;
    }
    one.carries_blocks = carrying_.contains(each.link);
    now.others.push_back(std::move(one));
  }
  start_->blocks->post([to = start_->blocks, now = std::move(now)] { to->take_members(now); });
}

void cluster_shell::tell(const cluster::news& what) {
  using enum cluster::news::kind;
  const auto log = logger("cluster");
  const std::string address = what.where.text();
  switch (what.what) {
    case joined: log_info(log, "a node joined", {{"node", what.name}, {"address", address}}); break;
    case recovered: log_info(log, "a node is back", {{"node", what.name}, {"address", address}}); break;
    case suspected: log_warn(log, "a node is silent", {{"node", what.name}, {"reason", what.why}}); break;
    case gone: log_warn(log, "a node is gone", {{"node", what.name}, {"reason", what.why}}); break;
    case left: log_info(log, "a node left", {{"node", what.name}}); break;
    case refused: tell_refusal(what); break;
    case name_taken:
      log_error(log, "this node's name is taken: it stays out; see cluster.name",
                {{"address", address}, {"reason", what.why}});
      if (what.is_fatal) fatal_("cluster.name: " + what.why + " at " + address);
      break;
  }
}

/// Names and addresses are what somebody says who has proved nothing, and may say others each time.
void cluster_shell::tell_refusal(const cluster::news& what) {
  const std::string address = what.where.text();
  if (last_refusal_.size() >= most_refusals) last_refusal_.clear();
  if (std::exchange(last_refusal_[address], what.why) == what.why) return;
  if (const auto now = start_->clock(); now - refusals_since_ >= refusals_window) {
    refusals_since_ = now;
    refusals_logged_ = 0;
  }
  if (++refusals_logged_ > most_refusals_logged) return;
  log_warn(logger("cluster"), "no link to a node", {{"node", what.name}, {"address", address}, {"reason", what.why}});
  if (refusals_logged_ == most_refusals_logged)
    log_warn(logger("cluster"), "other refusals of this minute are counted only: greetings_refused in status");
}

caf::result<payload_ptr> cluster_shell::ping(const std::string& node, const payload_ptr& payload) {
  const auto found = peers_.find(node);
  if (found == peers_.end()) return caf::make_error(caf::sec::request_receiver_down, "no such node: " + node);
  return delegate(found->second, ping_atom_v, payload);
}

outcome cluster_shell::partition(const partition_order& order) {
  if (!members_) return {error_code::closed, "the network is not there yet", 0};
  if (order.other.empty()) {
    partitions_.clear();
  } else if (order.other == members_->self().name) {
    return {error_code::invalid_argument, "a node cannot be cut off from itself", 0};
  } else {
    partitions_[order.other] = order;
  }
  tell_pool();
  return {error_code::ok, "", partitions_.size()};
}

outcome cluster_shell::weigh(bool takes_part) {
  if (!members_) return {error_code::closed, "the network is not there yet", 0};
  members_->set_weight(takes_part ? start_->self.weight : 0);
  carry_out();
  return {error_code::ok, "", members_->self().weight};
}

void cluster_shell::measure_rates(steady_time now) {
  for (const auto& [name, total] : traffic_) {
    rate& of = rates_[name];
    const double seconds = std::chrono::duration<double>(now - of.since).count();
    if (now - of.since < rate_window) continue;
    if (of.since != steady_time{}) {
      of.sent_a_second = static_cast<double>(total.sent - of.then.sent) / seconds;
      of.heard_a_second = static_cast<double>(total.heard - of.then.heard) / seconds;
    }
    of.since = now;
    of.then = total;
  }
}

tier_report_ptr cluster_shell::report() {
  auto made = std::make_shared<cluster_report>();
  if (!members_) {
    if (start_) made->self = start_->self.name;
    if (start_) made->address = "nowhere yet: " + start_->why_not;
    made->describe();
    return made;
  }
  const auto now = start_->clock();
  measure_rates(now);
  made->self = members_->self().name;
  made->id = members_->cluster_id();
  made->address = members_->self().where.text();
  made->membership = members_->counters();
  made->traffic = totals_;
  made->traffic.requests = counts_->requests.load(std::memory_order_relaxed);
  const peer::oddities odd = start_->network->odd();
  made->traffic.strange_messages = odd.strange_messages;
  made->traffic.refused_links = odd.refused_links;
  made->traffic.strangers = odd.strangers;
  made->traffic.unended_closes = odd.unended_closes;
  made->traffic.overdue = counts_->overdue.load(std::memory_order_relaxed);
  if (start_->blocks) made->blocks = start_->blocks->copy_counters();
  made->now.live = members_->current().live.size();
  made->now.epoch = members_->epoch();
  made->now.weight = members_->self().weight;
  for (const cluster::peer_row& each : members_->peers()) {
    made->now.askable += each.state == cluster::peer_state::live && carrying_.contains(each.link) ? 1 : 0;
    peer_report one{.name = each.who.name,
                    .address = each.who.where.text(),
                    .state = std::string(name_of(each.state)),
                    .version = each.who.version,
                    .why = each.why,
                    .incarnation = each.who.born.number,
                    .is_live = each.state == cluster::peer_state::live,
                    .figures = {}};
    one.figures.for_s = std::chrono::duration<double>(now - each.since).count();
    one.figures.round_trip_s = std::chrono::duration<double>(each.round_trip).count();
    one.figures.weight = each.who.weight;
    one.figures.sent_bytes = traffic_[each.who.name].sent;
    one.figures.heard_bytes = traffic_[each.who.name].heard;
    one.figures.sent_bytes_per_s = rates_[each.who.name].sent_a_second;
    one.figures.heard_bytes_per_s = rates_[each.who.name].heard_a_second;
    made->peers.push_back(std::move(one));
  }
  if (start_->blocks) made->awaited_rows = *start_->blocks->awaited_snapshot.load();
  made->now.known = made->peers.size();
  made->queued = mailbox().queue().total_task_size();
  made->describe();
  return made;
}

}  // namespace cenote
