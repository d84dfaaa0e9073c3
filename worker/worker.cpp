#include "worker/worker.hpp"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>

#include "actors/cluster_host.hpp"
#include "actors/consensus.hpp"
#include "actors/data_path.hpp"
#include "actors/gpu_messages.hpp"
#include "actors/instance_maker.hpp"
#include "actors/live_curves.hpp"
#include "actors/lower_tier_host.hpp"
#include "actors/node.hpp"
#include "actors/pulse.hpp"
#include "actors/quota_mover.hpp"
#include "actors/remote_tier.hpp"
#include "actors/tier_options.hpp"
#include "actors/tier_stack.hpp"
#include "cluster/handovers.hpp"
#include "config/logging.hpp"
#include "config/node_config.hpp"
#include "config/trace_rules.hpp"
#include "core/device_spec.hpp"
#include "core/machine.hpp"
#include "core/version.hpp"
#include "transport/http/server.hpp"
#include "worker/copy_watch.hpp"
#include "worker/device_host.hpp"
#include "worker/kept_entries.hpp"
#include "worker/kill_at.hpp"
#include "worker/publisher/publisher.hpp"
#include "worker/recovery.hpp"
#include "worker/server.hpp"
#include "worker/trace_exporter/trace_exporter.hpp"

namespace cenote {

namespace {

/// Hands the pool its part of the configuration, all of which a reload may change.
void tell_groups(cluster::pool& pool, const config::node_config& config) {
  pool.rights.store(group_rights_of(config));
  pool.kept_here.store(std::make_shared<const cluster::group_names>(groups_kept_here(config)));
}

constexpr int exit_failed = 1;
constexpr int exit_config = 2;

class worker_system_config : public caf::actor_system_config {
 public:
  explicit worker_system_config(unsigned threads) {
    add_message_types<caf::id_block::cenote>();
    for (const lower_tier_kind& each : lower_tier_kinds()) each.add_messages(*this);
    add_cluster_messages(*this);
    add_message_types<caf::id_block::cenote_gpu>();
    set("scheduler.policy", caf::atom("sharing"));  // stealing workers sleep in 50 us steps that no message interrupts
    set("scheduler.max-threads", std::max(2U, threads));
    set("scheduler.max-throughput", 300U);
    set("logger.verbosity", caf::atom("quiet"));
  }
};

void log_populated(const blocks::populate_report& what) {
  using phase = blocks::populate_status::phase;
  const auto log = logger("dram");
  const std::uint64_t bytes = what.status.bytes;
  const std::uint64_t total = what.status.total;
  const auto took_ms = std::chrono::duration_cast<std::chrono::milliseconds>(what.took).count();
  switch (what.status.at) {
    case phase::going_on: log_info(log, "populating memory", {{"populated", bytes}, {"of", total}}); break;
    case phase::done: log_info(log, "memory is populated", {{"populated", bytes}, {"took_ms", took_ms}}); break;
    default:
      log_warn(log, "memory is not populated further: lower dram.capacity, or give the node more memory",
               {{"reason", what.reason}, {"populated", bytes}, {"of", total}});
  }
}

/// Ends the process when an orderly end takes too long.
class watchdog {
 public:
  explicit watchdog(std::chrono::nanoseconds limit) : thread_([this, limit] { wait(limit); }) {}
  watchdog(const watchdog&) = delete;
  watchdog& operator=(const watchdog&) = delete;
  ~watchdog() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

 private:
  void wait(std::chrono::nanoseconds limit) {
    std::unique_lock lock(mutex_);
    if (wake_.wait_for(lock, limit, [this] { return done_; })) return;
    log_error(logger("worker"), "the drain took too long, ending at once");
    ::_exit(exit_failed);
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  bool done_ = false;
  std::thread thread_;
};

constexpr std::chrono::seconds http_interval{2};      // between two tries to take the port of the metrics
constexpr std::chrono::minutes listener_interval{1};  // between two looks whether the socket has its file

using memory_hook = std::function<void(std::span<std::byte>)>;

/// Tells all who want to hear `which`; empty where nobody does.
memory_hook all_of(const std::vector<blocks::transfer_hooks>& each, memory_hook blocks::transfer_hooks::*which) {
  std::vector<memory_hook> all;
  for (const blocks::transfer_hooks& one : each) {
    if (one.*which) all.push_back(one.*which);
  }
  if (all.empty()) return {};
  return [all = std::move(all)](std::span<std::byte> memory) {
    for (const memory_hook& one : all) one(memory);
  };
}

/// Everything that runs, in the order in which it must be destroyed (last member first).
class worker {
 public:
  worker(const worker_options& options, local::keeper_link& keeper, config_ptr config, unique_fd signals)
      : options_(options),
        keeper_(keeper),
        config_(std::move(config)),
        signals_(std::move(signals)),
        copies_(config::runtime_dir(*config_),
                config_->dram.huge_pages == config::huge_pages::automatic ? page_kind::huge : page_kind::small),
        system_config_(config_->node.threads != 0 ? config_->node.threads : 2),
        system_(system_config_) {}

  result<void> start(local::handover handed) {
    const auto begun = std::chrono::steady_clock::now();
    install_kill(config_->debug, handed.epoch);
    copies_.start();
    auto path = data_path::start(system_, [count = exceptions_](auto, const std::string& what) {
      ++*count;
      log_error(logger("server"), "a doorbell was not answered", {{"reason", what}});
    });
    if (!path) return std::unexpected(path.error());
    data_path_ = std::move(*path);
    if (!config_->cluster.name.empty()) make_pool();
    make_lower(handed.entries);
    auto reserve = take_reserve(handed.entries);
    auto of_devices = take_device_entries(handed.entries);
    auto state = recover_state(dram_recovery(*config_), keeper_, std::move(handed.entries));
    if (!state) return std::unexpected(state.error().in("recovery"));
    for (std::uint32_t i = 0; i < device_count(); ++i) copy_threads_.push_back(std::make_unique<gpu::copy_thread>());
    make_provisioner();
    std::vector<session_ptr> known(state->sessions.begin(), state->sessions.end());
    const std::uint64_t blocks = state->blocks;
    const std::vector<blocks::session_number> suspects = state->store->suspects();
    for (const std::span<std::byte> memory : state->store->slab_memory()) provisioner_->adopt(memory);
    store_ = state->store;
    make_instance_maker(state->next_instance);
    const auto watched = std::make_shared<watched_limit>();
    if (config_->optimize.mode != config::optimize_mode::off) {
      curves_ = system_.spawn<live_curves>(watched, config_->nvme.paths.empty() ? 0 : config_->nvme.capacity);
    }
    tiers_ = make_tiers(system_, *data_path_,
                        {.store = std::move(state->store),
                         .sessions = std::move(known),
                         .request = [this](auto requests) { provisioner_->submit(std::move(requests)); },
                         .lower = tiers_of(lower_),
                         .plan = prefetch_options_of(*config_, edges_of(*config_)),
                         .alive = alive_,
                         .maker = maker_,
                         .tell_news = news_teller(),
                         .follow = follower(),
                         .tell_watched = curves_ ? watched_teller(curves_, watched) : nullptr,
                         .listeners = devices_taken_over(of_devices)});
    if (config_->optimize.mode == config::optimize_mode::apply) {
      mover_ = system_.spawn<quota_mover>(tiers_.top, curves_, config_);
    }
    connect_handovers();
    for (const auto& each : lower_) {
      if (auto opened = each->open(handed.epoch == 1); !opened) {
        bad_setup_ = true;
        return opened;
      }
    }
    make_groups(handed);
    if (auto joined = join_cluster(handed); !joined) {
      bad_setup_ = true;
      return joined;
    }
    const cluster_actor others = cluster_ ? cluster_->actor() : cluster_actor();
    node_ = system_.spawn<node>(
        tiers_.top, tiers_.planner, [this](const std::string& reason) { fatal(reason); }, tiers_.lower, others, groups_,
        curves_);
    bind_http();
    if (auto exporting = export_spans(); !exporting) return exporting;
    server_context context{
        system_,
        keeper_,
        *data_path_,
        tiers_.top,
        node_,
        handed.epoch,
        handed.node_started,
        handed.restarts,
        config::socket_path(*config_),
        [this] { return *metrics_.load(); },
        exceptions_,
        [this] { return provisioner_->populated(); },
        [this] { return copies_.decisions(); },
        [this](const auto& identity, const auto& answer) { cenote::count_unconfirmed(lower_, identity, answer); },
        !lower_.empty(),
        std::ranges::any_of(edges_of(*config_), [](const auto& each) { return !each.hinted; }),
        others,
        blocks_,
        groups_,
        curves_,
        exporter_,
        edge_names(*config_)};
    auto made = server::start(std::move(context), config_);
    if (!made) return std::unexpected(made.error());
    server_ = std::move(*made);
    for (const auto& session : state->sessions) server_->adopt(session);
    for (const blocks::session_number number : suspects) server_->end_suspect(number);
    open_devices(std::move(of_devices), handed.epoch);
    if (auto publishing = publish_events(); !publishing) return publishing;
    watch_over_all();
    // Before the first call is served: a thread that a call hangs must not find a keeper that still allows for a start.
    if (auto ready = keeper_.ready(); !ready) return ready;
    if (auto serving = server_->serve(std::move(handed.listener)); !serving) return serving;
    provisioner_->fill_reserve(std::move(reserve));  // only now: it has words for the keeper, too
    if (http_) serve_http();
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begun);
    log_info(logger("worker"), "serving", {{"epoch", handed.epoch}, {"blocks", blocks}, {"took_ms", took.count()}});
    return {};
  }

  /// After a failed start.
  [[noreturn]] void give_up(const error& why) {
    log_error(logger("worker"), "did not start", {{"reason", why.describe()}});
    keeper_.fatal(why.describe());
    ::_exit(bad_setup_ ? exit_config : exit_failed);
  }

  /// Until a signal or the keeper's end says otherwise.
  int serve() {
    while (true) {
      // Of the keeper only its end counts here: answers to calls are read by the threads that made them.
      std::array<pollfd, 2> waits{pollfd{signals_.get(), POLLIN, 0}, pollfd{keeper_.fd(), 0, 0}};
      const int ready = ::poll(waits.data(), waits.size(), until_next_work());
      if (ready < 0 && errno != EINTR) return exit_failed;
      beat();
      renew_listener();
      retry_http();
      if (ready == 0) copies_.advance(clock::now());  // the thread is idle
      if (ready <= 0) continue;
      if (waits[1].revents != 0) {
        log_warn(logger("worker"), "the keeper is gone: draining");
        return drain(keeper_.keeper_is_dead());
      }
      if ((waits[0].revents & POLLIN) == 0) continue;
      signalfd_siginfo signal{};
      if (::read(signals_.get(), &signal, sizeof signal) != sizeof signal) continue;
      switch (signal.ssi_signo) {
        case SIGTERM: return drain(keeper_.keeper_is_dead());
        case SIGHUP:
          try_to_reload();
          next_listener_ = clock::now();
          break;
        case SIGUSR2:
          // Hand over: every segment stays as it is, the next worker goes on.
          log_info(logger("worker"), "handing over");
          ::_exit(0);
        default: break;
      }
    }
  }

 private:
  using clock = std::chrono::steady_clock;

  void watch_over_all() {
    pulse_.add_actor("the DRAM tier", system_, tiers_.top);
    for (const lower_tier& each : tiers_.lower) pulse_.add_actor(each.name, system_, each.actor);
    pulse_.add_actor("the planner of prefetches", system_, tiers_.planner);
    pulse_.add_actor("the maker of instances", system_, maker_);
    pulse_.add_actor("the actor of groups of ranks", system_, groups_);
    if (cluster_) cluster_->watch_over(pulse_);
    pulse_.add_actor("the node's actor", system_, node_);
    server_->watch_over(pulse_);
  }

  [[nodiscard]] std::chrono::milliseconds beat_length() const {
    const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(config_->node.hang_timeout);
    return limit.count() == 0 ? limit : local::beat_of(limit);
  }

  /// For poll(): until the next beat, or until copies may be measured again.
  [[nodiscard]] int until_next_work() const {
    constexpr std::chrono::milliseconds longest = std::chrono::hours(1);
    const auto length = beat_length();
    auto next = std::min({next_listener_, next_http_, copies_.next_look()});
    if (length.count() != 0) next = std::min(next, next_beat_);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - clock::now());
    return static_cast<int>(
        std::clamp(left, std::chrono::milliseconds(0), length.count() == 0 ? longest : length).count());
  }

  /// Tells the keeper that all is well, or who does not answer. Who waits too long is the keeper's to say: after a stop
  /// of the whole process all answer again.
  void beat() {
    const auto length = beat_length();
    if (length.count() == 0 || clock::now() < next_beat_) return;
    next_beat_ = clock::now() + length;
    for (const auto& each : devices_) each->watch_over(pulse_);
    const auto [missed, late] = pulse_.beat();
    if (missed == 2) log_warn(logger("worker"), "no answer yet", {{"from", late}, {"ms", 2 * length.count()}});
    keeper_.alive(missed * length, late);
  }

  /// The keeper makes the socket's file again if it was deleted: by SIGHUP, and within a minute.
  void renew_listener() {
    if (clock::now() < next_listener_) return;
    next_listener_ = clock::now() + listener_interval;
    auto renewed = keeper_.renewed_listener();
    if (renewed && !*renewed) return;
    const result<void> serving = renewed ? server_->serve(std::move(**renewed)) : std::unexpected(renewed.error());
    if (!serving) {
      log_error(logger("worker"), "clients may not find this node", {{"reason", serving.error().describe()}});
    }
  }

  [[nodiscard]] static peer::incarnation born(const local::handover& handed) {
    const auto started =
        std::chrono::duration_cast<std::chrono::milliseconds>(handed.node_started.time_since_epoch()).count();
    return peer::incarnation::of(static_cast<std::uint64_t>(started), handed.epoch);
  }

  /// Ranks of this node alone may agree, too, and its name is then of no account.
  void make_groups(const local::handover& handed) {
    const std::string& name = config_->cluster.name;
    groups_ = system_.spawn<consensus>(name.empty() ? "local" : name, born(handed), handed.epoch);
  }

  result<void> join_cluster(const local::handover& handed) {
    if (config_->cluster.name.empty()) return {};
    auto made = cluster_host::start(
        {.system = system_,
         .config = config_->cluster,
         .born = born(handed),
         .weight = config_->dram.capacity + config_->nvme.capacity,
         .features = config_->nvme.paths.empty() ? peer::volatile_blocks : 0,
         .may_wait = handed.epoch > 1,  // engines use this node, in a cluster or alone
         // Of a node that has just been started only: a later worker has blocks, which engines use, name or no name.
         .fatal = handed.epoch == 1 ? [this](const std::string& reason) { give_up_name(reason); }
                                    : std::function<void(const std::string&)>([](const std::string&) {}),
         .blocks = blocks_,
         .dram = tiers_.top,
         .epoch = handed.epoch,
         .serves = {.window = config_->remote.peer_window,
                    .most_lent = config_->dram.capacity / 4,
                    .removal_lag = cluster::guest_options::lag_of(
                        std::chrono::duration_cast<std::chrono::milliseconds>(config_->remote.timeout))},
         .groups = groups_});
    if (!made) return std::unexpected(made.error());
    cluster_ = std::move(*made);
    return {};
  }

  /// Its network comes later. Alarms ring on the data path's thread, and are heard on the network's.
  void make_pool() {
    const auto made = std::make_shared<std::weak_ptr<cluster::pool>>();
    auto advance = [made] {
      if (const auto still = made->lock()) (void)still->post([still] { still->advance(); });
    };
    blocks_ = std::make_shared<cluster::pool>([alarm = std::shared_ptr<local::alarm>(data_path_->make_alarm(std::move(
                                                   advance)))](cluster::pool::steady_time when) { alarm->set(when); });
    *made = blocks_;
    tell_groups(*blocks_, *config_);
    handovers_ = std::make_shared<cluster::handovers>(*blocks_);
    blocks_->join_handovers(handovers_.get());
  }

  /// What is handed over passes through the network's thread; where there is none, nothing is.
  [[nodiscard]] std::function<void(std::vector<handover::news>)> news_teller() const {
    if (!handovers_) return {};
    return [to = handovers_](std::vector<handover::news> news) { to->take(std::move(news)); };
  }
  [[nodiscard]] std::function<void(handover::order)> follower() const {
    if (!handovers_) return {};
    return [to = handovers_](handover::order order) { to->follow(std::move(order)); };
  }
  void connect_handovers() {
    if (!handovers_) return;
    handovers_->use({.told =
                         [to = caf::actor_cast<caf::weak_actor_ptr>(tiers_.planner)](handover::news news) {
                           if (const auto still = to.lock())
                             caf::anon_send(caf::actor_cast<prefetch_actor>(still), news_atom_v,
                                            std::make_shared<const handover::news>(std::move(news)));
                         },
                     .asked =
                         [to = caf::actor_cast<caf::weak_actor_ptr>(tiers_.top)](handover::order order) {
                           if (const auto still = to.lock())
                             caf::anon_send(caf::actor_cast<dram_tier_actor>(still), follow_atom_v,
                                            std::make_shared<const handover::order>(std::move(order)));
                         }});
  }

  /// Of DRAM, and of the first tier below it that holds blocks on this machine.
  result<void> publish_events() {
    if (config_->publish.endpoint.empty()) return {};
    using publishing::event_medium;
    std::vector<publishing::change_source> sources;
    sources.push_back({event_medium::CPU, [to = caf::actor_cast<caf::weak_actor_ptr>(tiers_.top)](auto question) {
                         if (const auto still = to.lock())
                           caf::anon_send(caf::actor_cast<dram_tier_actor>(still), changes_atom_v,
                                          change_question_ptr(std::move(question)));
                       }});
    for (const auto& each : lower_) {
      if (auto changes = each->changes(); changes && sources.size() == 1)
        sources.push_back({event_medium::DISK, std::move(changes)});
    }
    const std::string& name = config_->publish.name.empty() ? config_->cluster.name : config_->publish.name;
    auto made =
        publishing::publisher::start({config_->publish.endpoint, config_->publish.replay, name}, std::move(sources));
    if (!made) return std::unexpected(made.error().in("publish"));
    publisher_ = std::move(*made);
    return {};
  }

  /// Spans of requests, to a collector.
  result<void> export_spans() {
    const config::trace_section& trace = config_->trace;
    if (trace.otlp.empty()) return {};
    auto collector = config::parse_collector(trace.otlp);
    if (!collector) return std::unexpected(collector.error().in("trace.otlp"));
    std::string name = config_->publish.name.empty() ? config_->cluster.name : config_->publish.name;
    traces::resource_texts resource{{"service.name", "cenote"},
                                    {"service.version", std::string(product_version())},
                                    {"host.name", first_line("/proc/sys/kernel/hostname").value_or("")}};
    if (!name.empty()) resource.emplace_back("service.instance.id", std::move(name));
    auto made = traces::trace_exporter::start({.collector = {.address = collector->server.address, .ca = trace.ca},
                                               .target = std::move(collector->target),
                                               .resource = std::move(resource)});
    if (!made) return std::unexpected(made.error().in("trace.otlp"));
    exporter_ = std::move(*made);
    return {};
  }

  /// How many of the configured ones an earlier worker had open.
  [[nodiscard]] std::uint32_t devices_taken_over(
      const std::map<tier_number, std::vector<local::registry_entry>>& entries) const {
    return static_cast<std::uint32_t>(
        std::ranges::count_if(entries, [&](const auto& each) { return each.first <= device_count(); }));
  }
  [[nodiscard]] std::uint32_t device_count() const {
    return config_->gpu.has_tier() ? static_cast<std::uint32_t>(config_->gpu.devices.size()) : 0;
  }

  /// In the background; the clients of a device's tier wait meanwhile, those of DRAM do not.
  void open_devices(std::map<tier_number, std::vector<local::registry_entry>> entries, std::uint64_t epoch) {
    const auto tell_server = server_->device_teller();
    const device_teller tell = [tell_server, node = node_](const device_news& news, auto sessions, auto suspects) {
      caf::anon_send(node, add_tier_atom_v, std::make_shared<const device_news>(news));
      tell_server(news, std::move(sessions), std::move(suspects));
    };
    for (std::uint32_t i = 0; i < device_count(); ++i) {
      const tier_number tier = i + 1;
      const std::string& device = config_->gpu.devices[i];
      tell({.tier = tier, .device = parse_device(device).value().name}, {}, {});
      auto held = std::move(entries[tier]);
      server_->expect(tier, sessions_in(held));
      entries.erase(tier);
      devices_.push_back(std::make_unique<device_host>(tier, device,
                                                       device_host_needs{.system = system_,
                                                                         .path = *data_path_,
                                                                         .keeper = keeper_,
                                                                         .config = config_,
                                                                         .dram = tiers_.top,
                                                                         .epoch = epoch,
                                                                         .exceptions = exceptions_,
                                                                         .copies = *copy_threads_[i],
                                                                         .tell = tell},
                                                       std::move(held)));
    }
    for (auto& [tier, held] : entries) retire_entries(keeper_, held);  // the configuration has it no more
  }

  void make_provisioner() {
    blocks::provisioner_options options;
    options.populate = config_->dram.populate;
    options.huge_pages = config_->dram.huge_pages == config::huge_pages::automatic;
    options.numa_node = config_->dram.numa_node.value_or(-1);
    options.on_exception = [count = exceptions_](const std::string& what) {
      ++*count;
      log_error(logger("dram"), "memory was not prepared", {{"reason", what}});
    };
    options.ahead = reserve_options_of(*config_);
    options.ahead.keep = [this](std::uint64_t id, const unique_fd& memory) {
      return keeper_.put(local::entry_kind::reserve, id, {}, std::array{memory.get()});
    };
    options.ahead.drop = [this](std::uint64_t id) { (void)keeper_.drop(local::entry_kind::reserve, id); };
    options.ahead.report = log_populated;
    std::vector<blocks::transfer_hooks> hooks;
    hooks.reserve(lower_.size());
    for (const auto& each : lower_) hooks.push_back(each->hooks());
    for (const auto& each : copy_threads_)
      hooks.push_back({.pin = {}, .unpin = [to = each.get()](std::span<std::byte> memory) { to->forget(memory); }});
    blocks::transfer_hooks all;
    all.pin = all_of(hooks, &blocks::transfer_hooks::pin);
    all.unpin = all_of(hooks, &blocks::transfer_hooks::unpin);
    auto kept = slabs_kept_by(keeper_);
    provisioner_ = std::make_unique<blocks::provisioner>(
        options, std::move(kept.keep), std::move(kept.drop),
        [this](blocks::slab_outcome outcome) {
          caf::anon_send(tiers_.top, slab_atom_v, std::make_shared<blocks::slab_outcome>(std::move(outcome)));
        },
        std::move(all), std::move(kept.forget));
  }

  void make_instance_maker(blocks::instance_number next) {
    maker_ = system_.spawn<instance_maker, caf::detached>(next, last_instance_of(0), instances_kept_by(keeper_));
  }

  void make_lower(std::vector<local::registry_entry>& entries) {
    lower_ = make_lower_tiers(
        {.system = system_,
         .path = *data_path_,
         .config = config_,
         .keep_memory = [&](const std::string& name,
                            std::uint64_t bytes) { return keep_memory(name, bytes, keeper_, entries); },
         .blocks = blocks_,
         .exceptions = exceptions_});
    // What no tier asked for is another configuration's: the keeper has it until that comes back.
    std::erase_if(entries, [](const auto& each) { return each.kind == local::entry_kind::tier_memory; });
  }

  /// A port that is taken is no reason not to serve: it is tried again. The first try that fails is logged.
  void bind_http() {
    if (!config_->metrics.listen) return;
    auto bound = http::server::bind(*config_->metrics.listen);
    next_http_ = bound ? clock::time_point::max() : clock::now() + http_interval;
    if (bound) {
      http_ = std::move(*bound);
      metrics_.store(std::make_shared<const metrics_place>(metrics_place{.address = http_->address().text()}));
      return;
    }
    const std::string where = config_->metrics.listen->text();
    if (metrics_.load()->problem.empty()) {
      log_warn(logger("worker"), "no metrics over HTTP",
               {{"metrics.listen", where}, {"reason", bound.error().describe()}});
    }
    metrics_.store(
        std::make_shared<const metrics_place>(metrics_place{.problem = where + ": " + bound.error().describe()}));
  }

  void retry_http() {
    if (clock::now() < next_http_) return;
    bind_http();
    if (!http_) return;
    serve_http();
    log_info(logger("worker"), "metrics over HTTP", {{"address", http_->address().text()}});
  }

  void serve_http() {
    const auto page_of = [](result<std::string> text, const char* type) -> result<http::page> {
      if (!text) return std::unexpected(text.error());
      return http::page{type, std::move(*text)};
    };
    const auto health_of = [](const result<void>& found) -> result<std::string> {
      if (!found) return std::unexpected(found.error());
      return "ok\n";
    };
    http_->serve(
        {{"/metrics", {[=, this] { return page_of(server_->metrics(), "text/plain; version=0.0.4"); }}},
         {"/ui", {[=, this] { return page_of(server_->page(), "text/html; charset=utf-8"); }}},
         {"/status", {[=, this] { return page_of(server_->status(), "application/json"); }}},
         {"/healthz",
          {.make = [=, this] { return page_of(health_of(alive_->check()), "text/plain"); }, .from_memory = true}}});
  }

  void try_to_reload() {
    try {
      reload();
    } catch (const std::exception& thrown) {
      ++*exceptions_;
      log_error(logger("worker"), "configuration not reloaded", {{"reason", thrown.what()}});
    }
  }

  void reload() {
    auto wanted = config::load(options_.sources);
    auto next = wanted ? config::reloaded(*config_, *wanted) : wanted;
    if (!next) {
      log_error(logger("worker"), "configuration not reloaded", {{"reason", next.error().describe()}});
      return;
    }
    for (const std::string& key : config::changed_unreloadable(*config_, *wanted)) {
      log_warn(logger("worker"), "needs a restart to change", {{"key", key}});
    }
    config_ = std::make_shared<const config::node_config>(std::move(*next));
    (void)set_levels(config_->log.level);
    server_->reload(config_);
    caf::anon_send(node_, reload_atom_v, config_);
    if (mover_) caf::anon_send(mover_, reload_atom_v, config_);
    if (blocks_) tell_groups(*blocks_, *config_);
    if (auto kept = keep_running(keeper_, *config_); !kept) {
      log_error(logger("worker"), "a later worker would start with the configuration of before",
                {{"reason", kept.error().describe()}});
    }
    log_info(logger("worker"), "configuration reloaded");
  }

  /// Puts what DRAM alone has into a tier below, where it outlives the node. A node whose keeper was killed does not:
  /// the next one may wait for its socket and its disks already.
  void flush(std::chrono::nanoseconds limit) {
    constexpr auto patience = std::chrono::seconds(1);  // the tier looks at its time a few times a second
    const caf::scoped_actor self(system_);
    self->request(tiers_.top, limit + patience, last_writes_atom_v, caf::timespan(limit))
        .receive([](const outcome&) {},
                 [](const caf::error& why) {
                   log_warn(logger("worker"), "blocks that DRAM alone had are lost", {{"reason", caf::to_string(why)}});
                 });
  }

  int drain(bool keeper_is_dead) {
    const auto flush_limit = keeper_is_dead ? std::chrono::nanoseconds(0) : config::flush_time(*config_);
    const watchdog limit(config_->node.drain_timeout + flush_limit + std::chrono::seconds(2) +
                         device_count() * gpu::copy_thread::patience);
    if (http_) http_->stop();  // its pages ask the server
    publisher_.reset();        // what is stored from now on is in the next worker's first batches
    if (cluster_) cluster_->leave();
    server_->drain(keeper_is_dead);
    {
      const caf::scoped_actor self(system_);
      self->request(node_, config_->node.drain_timeout, drain_atom_v)
          .receive([](const outcome&) {}, [](const caf::error&) {});
    }
    if (!keeper_is_dead && !lower_.empty()) flush(flush_limit);
    server_->stop();
    for (const auto& each : devices_) each->end_actors();
    server_.reset();
    exporter_.reset();  // now that no client hands in spans
    caf::anon_send_exit(node_, caf::exit_reason::user_shutdown);
    node_ = nullptr;
    tiers_ = {};
    groups_ = nullptr;  // the node's actor ended it
    curves_ = nullptr;  // the same
    mover_ = nullptr;   // the curves' actor ended it
    caf::anon_send_exit(maker_, caf::exit_reason::user_shutdown);
    maker_ = nullptr;
    if (cluster_) cluster_->stop();
    system_.await_all_actors_done();
    devices_.clear();
    for (const auto& each : lower_) each->stop();
    data_path_->stop();
    lower_.clear();  // only now: threads of theirs sent to their actors
    provisioner_.reset();
    log_info(logger("worker"), "drained");
    return 0;
  }

  [[noreturn]] void give_up_name(const std::string& reason) {
    log_error(logger("worker"), "ending: this node cannot be of the cluster", {{"reason", reason}});
    keeper_.fatal(reason);
    ::_exit(exit_config);
  }

  [[noreturn]] void fatal(const std::string& reason) {
    log_error(logger("worker"), "ending: the keeper starts the next worker", {{"reason", reason}});
    keeper_.fatal(reason);
    ::_exit(exit_failed);
  }

  const worker_options& options_;
  local::keeper_link& keeper_;
  config_ptr config_;
  unique_fd signals_;
  copy_watch copies_;
  worker_system_config system_config_;
  std::unique_ptr<data_path> data_path_;           ///< it ran actors of the system, which ends first
  std::shared_ptr<cluster::pool> blocks_;          ///< null: the node is alone
  std::shared_ptr<cluster::handovers> handovers_;  ///< the same
  std::unique_ptr<cluster_host> cluster_;          ///< null: the node is alone; the same
  caf::actor_system system_;
  /// For its memory: threads of the tiers below and the provisioner outlive the tier's actor.
  std::shared_ptr<const void> store_;
  std::vector<std::unique_ptr<gpu::copy_thread>> copy_threads_;  ///< of devices; the provisioner has them forget slabs
  std::unique_ptr<blocks::provisioner> provisioner_;
  bool bad_setup_ = false;
  std::shared_ptr<std::atomic<std::uint64_t>> exceptions_ = std::make_shared<std::atomic<std::uint64_t>>(0);
  std::vector<std::unique_ptr<lower_tier_host>> lower_;  ///< by edge
  instance_maker_actor maker_;
  tier_stack tiers_;
  std::vector<std::unique_ptr<device_host>> devices_;  ///< by tier, from 1 on
  consensus_actor groups_;
  live_curves_actor curves_;  ///< none: nothing is watched
  quota_mover_actor mover_;   ///< none: quotas stay
  node_actor node_;
  std::shared_ptr<health> alive_ = std::make_shared<health>();
  std::shared_ptr<traces::trace_exporter> exporter_;  ///< null: clients make no spans
  std::unique_ptr<server> server_;
  std::unique_ptr<http::server> http_;
  std::unique_ptr<publishing::publisher> publisher_;  ///< null: nothing is published
  std::atomic<std::shared_ptr<const metrics_place>> metrics_{std::make_shared<const metrics_place>()};
  clock::time_point next_http_ = clock::time_point::max();  ///< when a port that is taken is tried again
  pulse pulse_;
  clock::time_point next_beat_{};
  clock::time_point next_listener_ = clock::now() + listener_interval;
};

/// Whom the last words of this process go to.
std::atomic<local::keeper_link*> heir{nullptr};

/// An exception that nobody took, on any thread: the state behind it cannot be trusted. The keeper starts the next
/// worker, and knows why.
[[noreturn]] void end_by_exception() noexcept {
  std::array<char, 16> thread{};
  ::pthread_getname_np(::pthread_self(), thread.data(), thread.size());
  std::string reason = std::string("an exception ended the thread ") + thread.data();
  try {
    if (std::current_exception()) std::rethrow_exception(std::current_exception());
  } catch (const std::exception& thrown) {
    reason += std::string(": ") + thrown.what();
  } catch (...) {
    reason += ": not a std::exception";
  }
  log_error(logger("worker"), "ending: the keeper starts the next worker", {{"reason", reason}});
  if (auto* keeper = heir.load()) keeper->fatal(reason);
  std::abort();
}

result<unique_fd> take_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR2}) sigaddset(&signals, number);
  if (::sigprocmask(SIG_BLOCK, &signals, nullptr) != 0) return fail_errno("sigprocmask");
  unique_fd fd(::signalfd(-1, &signals, SFD_CLOEXEC));
  if (!fd) return fail_errno("signalfd");
  return fd;
}

}  // namespace

int run_worker(const worker_options& options) {
  local::keeper_link keeper{unique_fd(options.keeper_fd)};
  heir = &keeper;
  std::set_terminate(end_by_exception);
  auto handed = keeper.receive_handover();
  if (!handed) {
    log_error(logger("worker"), "no handover", {{"reason", handed.error().describe()}});
    return exit_failed;
  }
  auto config = take_configuration(*handed, options.sources, keeper);
  if (!config || !init_logging(config->log.level, config->log.format)) {
    log_error(logger("worker"), "configuration", {{"reason", config ? "log.level" : config.error().describe()}});
    return exit_config;
  }
  if (const auto network = config->cluster.name.empty() ? result<void>() : load_network(config->cluster); !network) {
    log_error(logger("worker"), "no network", {{"reason", network.error().describe()}});
    if (handed->epoch == 1) {
      keeper.fatal(network.error().describe());
      return exit_config;
    }
    if (config->publish.name.empty()) config->publish.name = config->cluster.name;
    config->cluster.name.clear();  // engines use this node, in a cluster or alone
  }
  auto signals = take_signals();
  if (!signals) {
    log_error(logger("worker"), "no signals", {{"reason", signals.error().describe()}});
    return exit_failed;
  }
  ::signal(SIGPIPE, SIG_IGN);
  worker running(options, keeper, std::make_shared<const config::node_config>(std::move(*config)), std::move(*signals));
  if (const auto started = running.start(std::move(*handed)); !started) {
    running.give_up(started.error());  // actors may run already; the keeper decides what is next
  }
  return running.serve();
}

}  // namespace cenote
