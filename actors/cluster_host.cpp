#include "actors/cluster_host.hpp"

#include <chrono>
#include <utility>

#include "actors/ask.hpp"
#include "actors/cluster.hpp"
#include "actors/cluster_check.hpp"
#include "config/cluster_rules.hpp"
#include "config/logging.hpp"
#include "core/random_number.hpp"
#include "core/socket_address.hpp"
#include "core/version.hpp"

namespace cenote {

namespace {

constexpr std::chrono::milliseconds leave_limit{500};
constexpr std::chrono::milliseconds look_length{100};  // how long a stop may wait
constexpr unsigned looks_a_try = 10;

std::chrono::milliseconds whole_ms(std::chrono::nanoseconds of) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(of);
}

result<cluster::membership_options> options_of(const config::cluster_section& config) {
  cluster::membership_options options;
  options.cluster = config.id;
  auto secret = config::cluster_secret(config);
  if (!secret) return std::unexpected(secret.error());
  options.shared = peer::secret(std::move(*secret));
  for (const std::string& each : config.seeds) {
    auto where = parse_endpoint(each);
    if (!where) return std::unexpected(where.error().in("cluster.seeds"));
    auto& kind = numeric_address(*where) ? options.seeds : options.names;
    kind.push_back(std::move(*where));
  }
  options.beat = whole_ms(config.beat);
  options.suspect_after = whole_ms(config.suspect_after);
  options.gone_after = whole_ms(config.gone_after);
  options.jitter_seed = random_number();
  return options;
}

}  // namespace

void add_cluster_messages(caf::actor_system_config& config) {
  config.add_message_types<caf::id_block::cenote_cluster>();
  config.add_message_types<caf::id_block::cenote_guest>();
  config.add_message_types<caf::id_block::cenote_consensus>();
}

result<void> load_network(const config::cluster_section& config) {
  const auto options = network_options_of(config);
  if (!options) return std::unexpected(options.error());
  const auto loaded = ucx::load_library(options->variables);
  return loaded ? result<void>() : std::unexpected(loaded.error());
}

std::shared_ptr<const cluster::group_rights> group_rights_of(const config::node_config& config) {
  cluster::group_rights all;
  for (const auto& [name, group] : config.groups) {
    if (!group.token.empty() || !group.uids.empty()) all.tokens.emplace(name, group.token);
  }
  return std::make_shared<const cluster::group_rights>(std::move(all));
}

result<std::unique_ptr<cluster_host>> cluster_host::start(const cluster_needs& needs) {
  auto options = options_of(needs.config);
  if (!options) return std::unexpected(options.error());
  auto settings = network_options_of(needs.config);
  if (!settings) return std::unexpected(settings.error());
  settings->shared = options->shared;
  std::unique_ptr<cluster_host> made(new cluster_host(needs.system));
  made->actor_ = needs.system.spawn<cluster_shell>(needs.fatal);
  made->target_ = caf::actor_cast<caf::strong_actor_ptr>(made->actor_);
  if (needs.blocks) made->open_guest(needs);
  cluster_start with{.network = {},
                     .why_not = {},
                     .self = {.name = needs.config.name,
                              .version = std::string(product_version()),
                              .where = {},
                              .blocks_at = {},
                              .born = needs.born,
                              .weight = needs.config.weight != 0 ? needs.config.weight : needs.weight,
                              .features = needs.features},
                     .options = std::move(*options),
                     .blocks = needs.blocks,
                     .groups = needs.groups};
  const auto listens = made->listen(*settings, with);
  if (listens) return made;
  if (!needs.may_wait) return std::unexpected(listens.error().in("cluster.listen"));
  log_error(logger("cluster"), "other nodes do not reach this one; it tries again",
            {{"reason", listens.error().describe()}});
  with.why_not = listens.error().message();
  caf::anon_send(made->actor_, begin_atom_v, std::make_shared<const cluster_start>(with));
  made->listen_later(*settings, with);
  return made;
}

result<void> cluster_host::listen(const ucx::network_options& options, cluster_start with) {
  auto network = ucx::start_network(options, events());
  if (!network) return std::unexpected(network.error());
  const std::shared_ptr<ucx::network> made = std::move(*network);
  with.network = made;
  with.self.where = made->where();
  with.self.blocks_at = made->blocks_at();
  log_info(logger("cluster"), "other nodes reach this one",
           {{"name", with.self.name}, {"address", with.self.where.text()}});
  network_.store(made);
  if (blocks_) blocks_->use(made);
  caf::anon_send(actor_, begin_atom_v, std::make_shared<const cluster_start>(std::move(with)));
  return {};
}

/// On a thread of its own, since UCX and the name service may wait. Until there is a network it stands for the
/// network's: removals are answered, and kept.
void cluster_host::listen_later(const ucx::network_options& options, const cluster_start& with) {
  listens_later_ = std::jthread([this, options, with](const std::stop_token& stop) {
    for (unsigned looks = 1; !stop.stop_requested(); ++looks) {
      std::this_thread::sleep_for(look_length);
      if (blocks_) blocks_->advance_early();
      if (looks % looks_a_try == 0 && listen(options, with)) return;
    }
  });
}

void cluster_host::tell(link_event event) {
  runner_.hand_over(target_,
                    caf::make_message(link_atom_v, link_event_ptr(std::make_shared<link_event>(std::move(event)))));
}

peer::network_events cluster_host::events() {
  auto all = link_events([this](link_event event) { tell(std::move(event)); });
  if (!blocks_) {  // nobody asks for blocks, so none is expected
    all.expects = [](peer::link_id, const peer::piece_header&, std::size_t) { return std::span<std::byte>(); };
    all.landed = [](peer::link_id, const peer::piece_header&, std::span<const std::byte>) {};
    all.sent = [](peer::link_id, std::uint64_t, const result<void>&) {};
    all.after_round = [this] { return runner_.run_some(); };
    return all;
  }
  all.expects = [this](peer::link_id from, const peer::piece_header& head, std::size_t bytes) {
    return blocks_->expects(from, head, bytes);
  };
  all.landed = [this](peer::link_id from, const peer::piece_header& head, std::span<const std::byte> piece) {
    blocks_->landed(from, head, piece);
  };
  all.sent = [this](peer::link_id to, std::uint64_t token, const result<void>& how) {
    blocks_->sent(to, token, how.has_value());
  };
  all.closed = [this, tell_actor = all.closed](peer::link_id which, const error& why) {
    blocks_->closed(which);
    tell_actor(which, why);
  };
  all.after_round = [this] {
    blocks_->flush();
    return runner_.run_some();
  };
  return all;
}

/// The half of the pool that serves others. Its actor runs on the network's thread when that thread has orders for it.
void cluster_host::open_guest(const cluster_needs& needs) {
  blocks_ = needs.blocks;
  guest_actor_ = system_.spawn<guest_keeper>(
      needs.dram, needs.epoch, [to = blocks_](std::function<void()> what) { (void)to->post(std::move(what)); });
  room_ = std::make_unique<guest_room>(
      [this, to = caf::actor_cast<caf::strong_actor_ptr>(guest_actor_)](guest_order_ptr order) {
        runner_.hand_over(to, caf::make_message(guest_atom_v, std::move(order)));
      });
  guest_ = std::make_unique<cluster::guest>(*blocks_, *room_, needs.serves);
  blocks_->join(nullptr, guest_.get());
}

void cluster_host::watch_over(pulse& all) {
  all.add_actor("the cluster's actor", system_, actor_);
  all.add("the network's thread", [this](std::function<void()> answer) {
    const auto network = network_.load();
    network ? network->run(std::move(answer)) : answer();
  });
}

void cluster_host::leave() {
  (void)ask<outcome>(system_, leave_limit, actor_, leave_atom_v);
}

void cluster_host::stop() {
  listens_later_ = {};                                        // stopped, and waited for
  if (const auto network = network_.load()) network->stop();  // what it said last is still delivered
  runner_.give_up();
  if (actor_) caf::anon_send_exit(actor_, caf::exit_reason::user_shutdown);
  if (guest_actor_) caf::anon_send_exit(guest_actor_, caf::exit_reason::user_shutdown);
  guest_actor_ = nullptr;
  room_.reset();
  actor_ = nullptr;
  target_ = nullptr;
}

}  // namespace cenote
