#include "tiers/blocks/store.hpp"

#include <algorithm>
#include <utility>

#include "tiers/blocks/parts.hpp"
#include "tiers/blocks/status.hpp"

namespace cenote::blocks {

namespace {

constexpr std::uint64_t index_steps_per_tick = 16'384;  // about a millisecond

}  // namespace

store::store(store_options options, memory::record_table records)
    : parts_(std::make_unique<parts>(std::move(options), std::move(records))) {
  parts_->all.guard.count_death();
}

store::~store() = default;

// ---------------------------------------------------------------------------------------------- instances

result<std::optional<instance_number>> store::find_instance(const instance_spec& spec, std::uint32_t owner) const {
  return parts_->table.find_instance(spec, owner);
}

result<void> store::check_fits(const instance_spec& spec) const {
  return parts_->table.check_fits(spec);
}

result<void> store::add_instance(instance_number number, const instance_spec& spec, memory::index_writer index,
                                 memory::version_table versions, boot_time now, std::uint32_t owner) {
  return parts_->table.add_instance(number, spec, std::move(index), std::move(versions), now, owner);
}

result<void> store::make_room(std::uint32_t owner, boot_time now) {
  return parts_->idle.make_room(owner, now);
}

void store::claim_instance(instance_number number, boot_time now) noexcept {
  parts_->table.claim_instance(number, now);
}

std::optional<std::pair<unique_fd, unique_fd>> store::descriptors(instance_number number) const {
  return parts_->table.descriptors(number);
}

std::optional<memory::slab_place> store::slab_place_of(instance_number number, std::uint32_t index) const {
  return parts_->table.slab_place_of(number, index);
}

std::optional<std::pair<unique_fd, std::uint64_t>> store::slab_descriptor(instance_number number,
                                                                          std::uint32_t index) const {
  return parts_->table.slab_descriptor(number, index);
}

std::optional<std::uint64_t> store::clear_instance(const std::string& id, boot_time now, std::vector<removal>* below) {
  return parts_->clear.clear_instance(id, now, below);
}

std::uint64_t store::clear_all(boot_time now, std::vector<removal>* below) {
  return parts_->clear.clear_all(now, below);
}

std::optional<std::vector<clear_work>> store::begin_clear(const std::string& id, std::vector<removal>& below) {
  return parts_->clear.begin_clear(id, below);
}

std::optional<clear_work> store::begin_clear(instance_number number) {
  return parts_->clear.begin_clear(number);
}

std::uint64_t store::forget_keys(instance_number number, std::span<const block_key> keys, boot_time now) {
  return parts_->clear.forget_keys(number, keys, now);
}

bool store::clear_some(clear_work& work, boot_time now, std::uint64_t budget) {
  return parts_->clear.clear_some(work, now, budget);
}

std::uint64_t store::corrupt_all(std::vector<removal>& below) {
  return parts_->clear.corrupt_all(below);
}

void store::set_share(instance_number number, std::shared_ptr<const instance_share> share) {
  parts_->table.set_share(number, std::move(share));
}

std::vector<instance_binding> store::take_bindings() {
  return parts_->table.take_bindings();
}

std::vector<instance_number> store::take_given_up() {
  return parts_->table.take_given_up();
}

instance_number store::next_instance() const noexcept {
  return parts_->all.records.next_instance();
}

// ---------------------------------------------------------------------------------------------- slabs

std::vector<slab_request> store::take_requests() {
  return parts_->space.take_requests();
}

void store::add_slab(const slab_description& what, memory::slab_mapping memory) {
  if (parts_->space.add_slab(what, std::move(memory))) parts_->moves.note_memory();
}

void store::slab_failed(const slab_description& what, boot_time retry_at) {
  parts_->space.slab_failed(what, retry_at);
}

std::vector<std::span<std::byte>> store::slab_memory() const {
  return parts_->space.slab_memory();
}

void store::slab_dropped(const slab_description& what) {
  parts_->space.slab_dropped(what);
}

// ---------------------------------------------------------------------------------------------- sessions

result<void> store::add_session(session_number number, instance_number instance, memory::session_memory memory,
                                std::uint32_t uid) {
  return parts_->attached.add_session(number, instance, memory, uid);
}

void store::release_session(session_number number, boot_time now) {
  parts_->attached.release_session(number, now);
}

void store::disconnect_session(session_number number, boot_time now) {
  parts_->attached.disconnect_session(number, now);
}

result<void> store::reattach_session(session_number number, std::optional<std::span<const held_parts>> held) {
  return parts_->attached.reattach_session(number, held);
}

void store::end_session(session_number number, boot_time now) {
  parts_->attached.end_session(number, now);
}

std::vector<session_number> store::suspects() const {
  return parts_->attached.suspects();
}

// ---------------------------------------------------------------------------------------------- work

progress store::run(batch& work, boot_time now, std::uint64_t budget) {
  return parts_->submit.run(work, now, budget);
}

void store::give_up(batch& work, boot_time /*now*/) {
  parts_->submit.give_up(work);
}

void store::tick(boot_time now) {
  if (auto& end = parts_->all.recorded_until; end && is_due(*end, now)) end.reset();
  for (const auto& [number, each] : parts_->all.instances) {
    std::vector<std::uint64_t> late;
    for (const auto& [bits, held] : each->reservations) {
      if (is_due(held.deadline, now)) late.push_back(bits);
    }
    for (const std::uint64_t bits : late) parts_->in_hands.revoke_reservation(*each, bits);
    parts_->blocks.rescan_zombies(*each);
    each->index.migrate(index_steps_per_tick);
  }
  for (const auto& [number, each] : parts_->all.sessions) session_table::note_oldest_pin(*each, now);
  parts_->expire.expire(now);
  parts_->all.requests.expire(now);
  parts_->edges.drain_lost(now);
  if (parts_->all.lingers_until && is_due(*parts_->all.lingers_until, now)) parts_->in_hands.end_lingering();
  parts_->idle.give_up_idle(now);
  parts_->kept.trim_kept(now);
  for (account* payer : parts_->payers.all_accounts()) {  // a quota that was lowered
    if (payer->given.quota == 0 || payer->used <= payer->given.quota) continue;
    if (pool* oldest = parts_->evict.pool_with_oldest(payer, now)) {
      parts_->evict.evict_from_account(*payer, *oldest, payer->used - payer->given.quota, now);
    }
  }
}

bool store::evict_ahead(boot_time now) {
  return parts_->edges.evict_ahead(now);
}

// ---------------------------------------------------------------------------------------------- the tier below

result<void> store::begin_handing_on() {
  const std::vector<edge_options>& edges = parts_->all.options.edges;
  const auto found = std::ranges::find(edges, false, &edge_options::hinted);
  if (found == edges.end()) return fail(error_code::invalid_argument, "no tier outside this machine takes blocks");
  const auto edge = static_cast<edge_number>(found - edges.begin());
  if (parts_->all.away[edge]) return fail(error_code::closed, "no other node can be reached");
  parts_->handing.begin(edge, handing_purpose::leaving);
  return {};
}

result<void> store::begin_last_writes() {
  const std::vector<edge_options>& edges = parts_->all.options.edges;
  edge_set others;
  for (edge_number edge = 0; edge < edges.size(); ++edge)
    others[edge] = edges[edge].late_offers == late_offers::lacking;
  auto found = parts_->edges.demotion_edge(others | parts_->all.away);
  if (!found) found = parts_->edges.demotion_edge(others);  // away: what is left is counted all the same
  if (!found) return fail(error_code::invalid_argument, "no tier below takes blocks");
  parts_->handing.begin(*found, handing_purpose::stopping);
  return {};
}

bool store::begin_catching_up(edge_number edge) {
  const edge_options& below = parts_->all.options.edges.at(edge);
  const handing_on& running = parts_->handing;
  if (below.late_offers == late_offers::none || below.ingest != ingest::all) return false;
  const bool has_missed = running.is_under_way() || !parts_->edges.missed(edge).empty();
  if (below.late_offers == late_offers::missed && !has_missed) return false;
  if (running.is_under_way() && running.purpose() != handing_purpose::catch_up) return false;
  parts_->handing.begin(edge, handing_purpose::catch_up);
  return true;
}

bool store::hand_on(boot_time now) {
  return parts_->handing.step(now);
}

std::optional<handed_on> store::end_handing_on(bool is_late) {
  if (!parts_->handing.is_over() && !(is_late && parts_->handing.is_sorted())) return std::nullopt;
  return parts_->handing.end();
}

std::optional<edge_number> store::hinted_edge() const noexcept {
  const std::vector<edge_options>& edges = parts_->all.options.edges;
  const auto found = std::ranges::find(edges, true, &edge_options::hinted);
  if (found == edges.end()) return std::nullopt;
  return static_cast<edge_number>(found - edges.begin());
}

std::vector<transfer> store::take_demotions(edge_number edge) {
  return parts_->transfers.take_writes(edge);
}

std::vector<removal> store::take_expired() {
  return parts_->expire.take_expired();
}

std::vector<std::uint64_t> store::transferred(std::span<const transfer_outcome> outcomes, boot_time now) {
  return parts_->edges.transferred(outcomes, now);
}

prefetch::load_answer store::load(instance_number number, std::uint32_t group, const full_key& full, boot_time now) {
  return parts_->edges.load(number, group, full, now);
}

std::vector<transfer> store::take_loads(edge_number edge) {
  return parts_->transfers.take_loads(edge);
}

void store::forget_copies(std::span<const lost_block> lost, edge_number edge) {
  parts_->edges.forget_copies(edge, lost);
}

void store::set_standing(edge_number edge, bool stands) noexcept {
  parts_->all.away[edge] = !stands;
}

void store::release_loading(edge_number edge) {
  parts_->edges.release_loading(edge);
}

void store::abandon_loading(edge_number edge) noexcept {
  parts_->transfers.abandon_recovered(edge);
}

bool store::has_checks() const noexcept {
  return !parts_->checks.is_idle();
}

std::optional<removal> store::check_some(boot_time now) {
  return parts_->checks.step(now);
}

std::vector<wrong_session> store::take_wrong_sessions() noexcept {
  return parts_->checks.take_sessions();
}

bool store::is_present(instance_number number, std::uint32_t group, const full_key& full) const noexcept {
  return parts_->edges.is_present(number, group, full);
}

// ---------------------------------------------------------------------------------------------- prefetches

std::vector<prefetch::request> store::take_prefetches() {
  return parts_->prefetching.take_prefetches();
}

prefetch::command_result store::execute(const prefetch::command& command, boot_time now) {
  return parts_->prefetching.execute(command, now);
}

void store::follow(const handover::order& what, boot_time now) {
  parts_->all.requests.follow(what, now);
}

std::vector<handover::news> store::take_news() {
  return parts_->all.requests.take_news();
}

void store::record_requests(boot_time end) noexcept {
  parts_->all.recorded_until = end;
}

bool store::is_recorded() const noexcept {
  return parts_->all.recorded_until.has_value();
}

watched_requests& store::watched() noexcept {
  return parts_->all.watched;
}

block_changes& store::changes() noexcept {
  return parts_->all.changes;
}

const block_listing& store::listing() const noexcept {
  return parts_->listing;
}

// ---------------------------------------------------------------------------------------------- configuration

void store::set_water_marks(double high, double low) noexcept {
  parts_->edges.set_water_marks(high, low);
}

result<void> store::set_policy(const std::string& name, boot_time now) {
  return parts_->order.set_policy(name, now);
}

void store::set_groups(std::map<std::string, group_options> groups, boot_time now) {
  parts_->kept.set_groups(std::move(groups), now);
}

void store::set_quota(const std::string& group, std::uint64_t bytes) {
  parts_->payers.set_quota(group, bytes);
}

void store::set_life(life_options life) noexcept {
  parts_->all.options.life = std::move(life);
}

void store::set_limits(const limit_options& limits, boot_time now) {
  parts_->kept.set_limits(limits, now);
}

void store::set_reserve_timeout(tenths timeout) noexcept {
  parts_->all.options.reserve_timeout = timeout;
}

// ---------------------------------------------------------------------------------------------- restart

result<void> store::recover_instance(instance_number number, const instance_spec& spec, memory::shared_file index,
                                     memory::version_table versions, std::uint32_t owner) {
  return parts_->recover.recover_instance(number, spec, std::move(index), std::move(versions), owner);
}

result<void> store::recover_slab(const slab_description& what, memory::slab_mapping memory) {
  return parts_->recover.recover_slab(what, std::move(memory));
}

result<void> store::recover_session(session_number number, instance_number instance, memory::session_memory memory,
                                    std::uint32_t uid) {
  return parts_->recover.recover_session(number, instance, memory, uid);
}

std::uint64_t store::rebuild(boot_time now) {
  return parts_->recover.rebuild(now);
}

store_status store::status(boot_time now) const {
  return status_of(*parts_, now);
}

bool store::has_leftovers() const noexcept {
  return std::ranges::any_of(parts_->all.instances, [](const auto& each) {
    return !each.second->reservations.empty() || !each.second->zombies.empty();
  });
}

}  // namespace cenote::blocks
