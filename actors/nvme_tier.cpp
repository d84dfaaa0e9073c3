#include "actors/nvme_tier.hpp"

#include <algorithm>
#include <ctime>
#include <utility>

#include "config/logging.hpp"
#include "core/checksum.hpp"
#include "tiers/nvme/path_file.hpp"

namespace cenote {

namespace {

constexpr auto removal_deadline = std::chrono::seconds(3);  // below those of whoever waits for the answer

wall_time unix_now() {
  return std::chrono::time_point_cast<wall_seconds>(std::chrono::system_clock::now());
}

}  // namespace

std::map<std::string, wall_seconds> nvme_ttls_of(const config::node_config& config) {
  std::map<std::string, wall_seconds> ttls;
  for (const auto& [name, given] : config.groups) {
    const auto seconds = std::chrono::ceil<wall_seconds>(given.ttl);
    ttls.emplace(name, seconds);
    if (name == "default" && !config.limits.open_groups) ttls.emplace("", seconds);
  }
  return ttls;
}

nvme_tier::nvme_tier(caf::actor_config& config, nvme::store_options options, std::map<std::string, wall_seconds> ttls,
                     std::shared_ptr<nvme::devices> devices)
    : nvme_tier_actor::base(config),
      store_(std::make_shared<nvme::store>(std::move(options))),
      devices_(std::move(devices)),
      ttls_(std::move(ttls)) {
  devices_->keep(store_);
  paths_.resize(store_->status().paths.size());
  for (std::uint32_t i = 0; i < paths_.size(); ++i) {
    paths_[i].directory = devices_->directory_of(i);
    opening_.insert(i);
  }
}

void nvme_tier::on_exit() {
  above_ = nullptr;
  saving_.clear();  // their promises answer with an error
  store_->forget_names();
  if (auto changes = store_->take_changes(); !changes.empty()) devices_->save(std::move(changes), nvme::unasked);
  devices_.reset();
}

nvme_tier::behavior_type nvme_tier::make_behavior() {
  return {
      [this](above_atom, blocks::edge_number edge) {
        above_ = caf::actor_cast<upper_tier_actor>(current_sender());
        edge_ = edge;
        if (opening_.empty()) tell_drained();  // the paths were faster
        flush_outbox();
      },
      [this](bind_atom, const instance_binding_ptr& instance) { bind(*instance); },
      [this](unbind_atom, std::uint32_t instance) { unbind(instance); },
      [this](write_atom, const transfers_ptr& blocks) {
        store_->write(*blocks, unix_now());
        flush_outbox();
      },
      [this](fetch_atom, const transfers_ptr& blocks) {
        store_->read(*blocks, unix_now());
        flush_outbox();
      },
      [this](locate_atom, const key_query_ptr& asked) { return locate(*asked); },
      [this](forget_atom, const removals_ptr& removals) { return forget(removals); },
      [this](path_atom, const opened_path_ptr& opened) { take_path(*opened); },
      [this](io_atom, const io_done_ptr& io) {
        const nvme::path_state before = store_->state_of(io->path);
        note_ends(io->completions);
        store_->complete(io->path, io->completions, unix_now());
        if (store_->state_of(io->path) != before) say_state(io->path);
        flush_outbox();
      },
      [this](catalog_saved_atom, const save_report_ptr& report) { take_saved(*report); },
      [this](broke_atom, std::uint32_t path, const std::string& what) { take_broken(path, what); },
      [this](changes_atom, const change_question_ptr& question) { tell_changes(*question); },
      [this](report_atom) { return report(); },
      [this](tick_atom) { tick(); },
      [this](reload_atom, const config_ptr& config) { reload(*config); },
  };
}

/// The store knows instances by their identities alone.
class nvme_tier::listing final : public block_listing {
 public:
  listing(const nvme::store& store, const std::unordered_map<std::uint32_t, instance_spec>& specs) noexcept
      : store_(store), specs_(specs) {}

  block_place list(block_place first, std::size_t steps, std::vector<tier_change>& blocks) const override {
    return store_.list(first, steps, blocks);
  }
  [[nodiscard]] std::optional<change_subject> subject_of(std::uint32_t instance) const override {
    const auto found = specs_.find(instance);
    if (found == specs_.end()) return std::nullopt;
    return change_subject{instance, found->second.model, static_cast<std::uint32_t>(found->second.groups.size())};
  }

 private:
  const nvme::store& store_;
  const std::unordered_map<std::uint32_t, instance_spec>& specs_;
};

void nvme_tier::tell_changes(const change_question& question) {
  answer_changes(store_->changes(), listing(*store_, specs_), question);
}

void nvme_tier::reload(const config::node_config& config) {
  ttls_ = nvme_ttls_of(config);
  for (const auto& [number, spec] : specs_) set_ttl(number, spec);
  if (auto set = store_->set_policy(config.nvme.policy); !set) {
    log_error(logger("nvme"), "the policy stays as it is", {{"reason", set.error().describe()}});
  }
}

void nvme_tier::bind(blocks::instance_binding& instance) {
  std::uint64_t smallest = ~std::uint64_t{0};
  for (const group_spec& group : instance.spec.groups) smallest = std::min(smallest, group.stride());
  auto hints = memory::hint_writer::open(std::move(instance.index), devices_->data_bytes() / smallest);
  if (!hints) {
    log_error(logger("nvme"), "an instance is served without the NVMe tier: its hints cannot be mapped",
              {{"instance", instance.spec.id}, {"reason", hints.error().describe()}});
    return;
  }
  const auto identity = nvme::identity_of(instance.spec);
  if (const auto known = identities_.find(identity); known != identities_.end() && known->second != instance.spec) {
    log_error(logger("nvme"), "an instance is served without the NVMe tier: another one has its identity",
              {{"instance", instance.spec.id}, {"other", known->second.id}});
    return;
  }
  const bool bound = store_->bind(instance.number, identity, std::move(*hints));
  if (!bound) {
    log_error(logger("nvme"), "an instance is served without the NVMe tier: it holds blocks of too many others",
              {{"instance", instance.spec.id}});
    return;
  }
  devices_->remember(instance.spec);
  identities_.insert_or_assign(identity, instance.spec);
  specs_.insert_or_assign(instance.number, instance.spec);
  set_ttl(instance.number, instance.spec);
}

/// Blocks that nobody used for their group's time to live go on expiring.
void nvme_tier::unbind(std::uint32_t instance) {
  const auto found = specs_.find(instance);
  if (found == specs_.end()) return;
  store_->unbind(instance);
  specs_.erase(found);
  flush_outbox();
}

void nvme_tier::set_ttl(std::uint32_t instance, const instance_spec& spec) {
  auto found = ttls_.find(spec.paying_group());
  if (found == ttls_.end()) found = ttls_.find("");
  store_->set_ttl(instance, found == ttls_.end() ? wall_seconds{} : found->second);
}

key_answer_ptr nvme_tier::locate(const key_query& asked) const {
  auto answer = std::make_shared<key_answer>();
  answer->held.reserve(asked.keys.size());
  for (const full_key& full : asked.keys) {
    answer->held.push_back(store_->contains(asked.instance, reduce_key(full.view(), asked.group)));
  }
  return answer;
}

void nvme_tier::take_path(const nvme::opened_path& opened) {
  paths_[opened.path] = {opened.directory, opened.engine, opened.direct, opened.budget.metadata_bytes, 0, 0};
  if (opened.drained) drained_.insert(opened.path);
  if (store_->state_of(opened.path) == nvme::path_state::failed) {
    log_warn(logger("nvme"), "a path opened after something broke on it", {{"path", opened.directory}});
  } else if (opened.status) {
    adopt(opened);
  } else {
    log_error(logger("nvme"), "a path is not used",
              {{"path", opened.directory}, {"reason", opened.status.error().describe()}});
    store_->path_failed(opened.path, opened.status.error().message());
  }
  opened_one(opened.path);
  flush_outbox();
}

/// Or never will be. Comes twice for a path on which something broke meanwhile.
void nvme_tier::opened_one(std::uint32_t path) {
  if (opening_.erase(path) == 0 || !opening_.empty()) return;
  late_ = {};
  for (const auto& [identity, spec] : identities_) store_->note_name(identity);  // blocks of some may have gone before
  tell_drained();
}

void nvme_tier::adopt(const nvme::opened_path& opened) {
  const auto log = logger("nvme");
  if (!opened.set_aside.empty()) {
    log_error(log, "the metadata cannot be used and is set aside: the path starts empty",
              {{"path", opened.directory}, {"reason", opened.set_aside}});
  }
  if (opened.metadata_waits) {
    log_warn(log, "the disk is full: what the path holds is served, and what is written is forgotten with the worker",
             {{"path", opened.directory}});
  }
  if (!opened.direct) {
    log_warn(log, "no direct I/O here: blocks go through the page cache", {{"path", opened.directory}});
  }
  if (!opened.no_uring.empty()) {
    log_warn(log, "io_uring cannot be used: threads read and write this path, which costs more CPU",
             {{"path", opened.directory}, {"reason", opened.no_uring}});
  }
  for (const auto& [identity, spec] : opened.instances) identities_.try_emplace(identity, spec);
  late_.resolve(opened.instances);
  store_->open_path(opened.path, nvme::path_file::data_offset, opened.end, opened.budget.max_blocks);
  std::uint64_t refused = opened.damaged;
  std::uint64_t removed = opened.removed;
  for (const nvme::adopted_block& block : opened.blocks) {
    const instance_identity& owner = opened.owners[block.owner];
    if (late_.contains(owner, block.key)) {
      ++removed;
    } else {
      refused += store_->adopt(opened.path, block, owner, opened.keys.find(block.number)) ? 0 : 1;
    }
  }
  log_info(log, "serving a path",
           {{"path", opened.directory},
            {"engine", opened.engine},
            {"checksums", checksum_instructions()},
            {"blocks", opened.blocks.size()},
            {"refused", refused},
            {"removed", removed},
            {"took_ms", opened.took.count()}});
}

/// An exception on a thread of the path. The thread goes on, so what is on its way there has its end.
void nvme_tier::take_broken(std::uint32_t path, const std::string& what) {
  if (store_->state_of(path) == nvme::path_state::failed) return;
  log_error(logger("nvme"), "a path is not used any more: a fault of this program, or want of memory",
            {{"path", paths_[path].directory}, {"reason", what}});
  store_->path_failed(path, what);
  opened_one(path);
  flush_outbox();
}

/// Whoever runs the node shall not have to look at its status to hear of a disk that fails.
void nvme_tier::say_state(std::uint32_t path) const {
  const nvme::path_status now = store_->status().paths[path];
  if (now.state == nvme::path_state::serving) {
    log_info(logger("nvme"), "a path is in service again", {{"path", paths_[path].directory}, {"blocks", now.blocks}});
  } else {
    log_warn(logger("nvme"), "a path is out of service: its disk gives errors",
             {{"path", paths_[path].directory}, {"reason", now.why}, {"errors", now.errors}, {"blocks", now.blocks}});
  }
}

/// No read of an earlier worker is under way: every path's lock is ours. Of a path that we could not lock nobody will
/// ever know.
void nvme_tier::tell_drained() {
  if (above_) send(above_, drained_atom_v, edge_, drained_.size() == paths_.size());
}

std::uint64_t nvme_tier::apply(const std::vector<blocks::removal>& removals) {
  std::uint64_t removed = 0;
  for (const blocks::removal& each : removals) {
    if (!each.all) {
      removed += store_->remove(each.instance, each.keys);
    } else if (each.instance != 0) {
      removed += store_->clear(each.instance);
      if (!each.id.empty()) removed += clear_named(each.id);  // what was stored under other specs of that name
    } else {
      removed += each.id.empty() ? store_->clear_all() : clear_named(each.id);
    }
  }
  return removed;
}

/// Of an instance that the tier above has given up, or has not had since the node started.
std::uint64_t nvme_tier::clear_named(const std::string& id) {
  std::uint64_t removed = 0;
  for (const auto& [identity, spec] : identities_) removed += spec.id == id ? store_->clear_identity(identity) : 0;
  return removed;
}

bool nvme_tier::knows(const std::string& id) const {
  return std::ranges::any_of(identities_, [&](const auto& each) { return each.second.id == id; });
}

void nvme_tier::add_named(const std::string& id, nvme::removal_set& to) const {
  for (const auto& [identity, spec] : identities_) {
    if (spec.id == id) to.add_instance(identity);
  }
}

/// As the paths know them: by the instances' identities.
nvme::removal_set nvme_tier::named(const std::vector<blocks::removal>& removals) const {
  nvme::removal_set what;
  for (const blocks::removal& each : removals) {
    const auto spec = specs_.find(each.instance);
    if (each.instance == 0 && each.id.empty()) {
      what.add_everything();
    } else if (each.instance == 0) {
      add_named(each.id, what);
      what.add_name(each.id);
    } else if (spec != specs_.end()) {
      const instance_identity identity = nvme::identity_of(spec->second);
      if (each.all) what.add_instance(identity);
      if (each.all && !each.id.empty()) {
        add_named(each.id, what);
        what.add_name(each.id);
      }
      for (const block_key& key : each.keys) what.add(identity, key);
    }
  }
  return what;
}

/// Answers when no path can bring the blocks back, or says which one can.
caf::result<outcome> nvme_tier::forget(const removals_ptr& removals) {
  const auto paths = store_->status().paths;
  // Of these nobody knows what they hold.
  const bool unread = std::ranges::any_of(paths, [](const auto& path) {
    return path.state == nvme::path_state::opening || path.state == nvme::path_state::failed;
  });
  for (const blocks::removal& each : *removals) {
    if (unread || each.instance != 0 || each.id.empty() || knows(each.id)) continue;
    return outcome::of(blocks::no_instance(each.id));
  }
  const std::uint64_t removed = apply(*removals);
  auto promise = make_response_promise<outcome>();
  saving made{.promise = promise_guard<outcome>(promise),
              .what = named(*removals),
              .removed = removed,
              .since = std::chrono::steady_clock::now(),
              .open = {}};
  if (!opening_.empty()) late_.add(made.what);  // what a path has read already is left out when it is heard of here
  const std::uint64_t tag = next_tag_++;
  // A path that has opened may not have been heard of here.
  made.open = devices_->save_removals(store_->take_changes(), made.what, unread, tag);
  if (made.open.empty()) {
    answer(made);
  } else {
    saving_.emplace(tag, std::move(made));
  }
  flush_outbox();
  return promise;
}

void nvme_tier::take_saved(const save_report& report) {
  if (!report.how.written && failed_saves_++ % 1000 == 0) {
    log_error(logger("nvme"), "metadata not written",
              {{"path", paths_[report.path].directory},
               {"reason", report.how.written.error().describe()},
               {"times", failed_saves_}});
  }
  const auto found = saving_.find(report.tag);
  if (found == saving_.end()) return;
  saving& each = found->second;
  std::erase(each.open, report.path);
  if (!report.how.removals_hold) each.not_on.emplace_back(report.path, report.how.written.error().describe());
  if (!each.open.empty()) return;
  answer(each);
  saving_.erase(found);
}

void nvme_tier::answer(saving& ended) {
  if (ended.not_on.empty()) return ended.promise.deliver({error_code::ok, {}, ended.removed});
  std::string where;
  for (const auto& [path, why] : ended.not_on) {
    where += (where.empty() ? "" : "; ") + paths_[path].directory + " (" + why + ")";
  }
  if (failed_removals_++ % 1000 == 0) {
    log_error(logger("nvme"),
              "removals are not written down: those blocks may be served again after a restart of the node",
              {{"paths", where}, {"keys", ended.what.size()}, {"times", failed_removals_}});
  }
  ended.promise.deliver({error_code::removal_pending,
                         "gone from memory, but not written down by " + where +
                             ": may be served again after a restart of the node; it goes on trying",
                         ended.removed});
}

/// A disk that does not answer: its path's removals are kept for the next worker.
void nvme_tier::answer_overdue() {
  const auto before = std::chrono::steady_clock::now() - removal_deadline;
  for (auto at = saving_.begin(); at != saving_.end();) {
    saving& each = at->second;
    if (each.since > before) {
      ++at;
      continue;
    }
    for (const std::uint32_t path : each.open) {
      devices_->owe(path, each.what);
      each.not_on.emplace_back(path, "no answer yet");
    }
    answer(each);
    at = saving_.erase(at);
  }
}

void nvme_tier::note_starts(std::span<const nvme::path_request> requests) {
  if (requests.empty()) return;
  const auto now = std::chrono::steady_clock::now();
  for (const nvme::path_request& each : requests) under_way_.emplace(each.io.tag, start{now, each.io.kind});
}

void nvme_tier::note_ends(std::span<const nvme::io_completion> completions) {
  const auto now = std::chrono::steady_clock::now();
  for (const nvme::io_completion& each : completions) {
    const auto found = under_way_.find(each.tag);
    if (found == under_way_.end()) continue;
    histogram& of = found->second.kind == nvme::io_kind::read ? reads_ : writes_;
    of.add(static_cast<std::uint64_t>((now - found->second.at).count()));
    under_way_.erase(found);
  }
}

void nvme_tier::flush_outbox() {
  if (!devices_) return;
  const auto requests = store_->take_requests();
  note_starts(requests);
  devices_->submit(requests);
  if (auto changes = store_->take_changes(); !changes.empty()) devices_->save(std::move(changes), nvme::unasked);
  if (!above_) return;
  if (auto outcomes = store_->take_outcomes(); !outcomes.empty()) {
    send(above_, transfers_done_atom_v, std::make_shared<const std::vector<transfer_outcome>>(std::move(outcomes)));
  }
  if (auto lost = store_->take_lost(); !lost.empty()) {
    send(above_, copies_lost_atom_v, edge_, std::make_shared<const std::vector<lost_block>>(std::move(lost)));
  }
}

tier_report_ptr nvme_tier::report() {
  auto made = std::make_shared<nvme_report>();
  made->store = store_->status();
  made->reads = reads_;
  made->writes = writes_;
  made->paths = paths_;
  for (std::uint32_t i = 0; i < made->paths.size(); ++i) {
    if (!made->paths[i].engine.empty()) made->paths[i].registered_bytes = devices_->pinned_bytes(i);
    made->paths[i].pending_removals = devices_->pending_removals_of(i);
  }
  made->failed_saves = failed_saves_;
  made->failed_removals = failed_removals_;
  made->queued = mailbox().queue().total_task_size();
  made->describe();
  return made;
}

void nvme_tier::tick() {
  answer_overdue();
  probing_ = !probing_;
  if (probing_) store_->tick(unix_now());
  for (const instance_identity& identity : store_->take_nameless()) identities_.erase(identity);
  flush_outbox();
}

}  // namespace cenote
