// The registry as a text, and the changes that a text makes.
#include "services/manager/registry/config_snapshot.hpp"

#include <algorithm>
#include <cstdint>
#include <expected>
#include <iterator>
#include <ranges>
#include <set>
#include <utility>

#include "services/manager/registry/field_faults.hpp"
#include "services/manager/registry/instance_rules.hpp"
#include "services/manager/registry/message_difference.hpp"
#include "services/manager/registry/registry_editor.hpp"
#include "services/manager/registry/storage_rules.hpp"
#include "transport/manager/message_json.hpp"

namespace cenote::manager {

namespace {

constexpr std::uint32_t snapshot_format = 1;

// Changes one after the other, as if each was made alone.
class change_chain {
 public:
  explicit change_chain(const manager_registry& base) { sum_.next = base; }

  [[nodiscard]] const manager_registry& last() const noexcept { return sum_.next; }

  // `subject`: of the thing, for notes and refusals.
  rpc_outcome<> add(rpc_outcome<registry_change> change, const std::string& subject, std::string_view verb) {
    if (!change) return refuse(change.error().code, subject + ": " + change.error().message);
    if (change->rows.empty()) return {};
    sum_.next = std::move(change->next);
    std::ranges::move(change->rows, std::back_inserter(sum_.rows));
    remark(subject + ": " + std::string(verb) + (change->note.empty() ? "" : " (" + change->note + ")"));
    return {};
  }

  void remark(const std::string& sentence) { sum_.note.append(sum_.note.empty() ? "" : "; ").append(sentence); }

  // The rows of a key but for the last one are of no use.
  registry_change take() && {
    std::vector<row_change> rows;
    std::set<std::string> keys;
    for (row_change& row : std::views::reverse(sum_.rows)) {
      if (keys.insert(row.key).second) rows.push_back(std::move(row));
    }
    std::ranges::reverse(rows);
    sum_.rows = std::move(rows);
    return std::move(sum_);
  }

 private:
  registry_change sum_;
};

using storage_use_of = std::function<storage_use(std::string_view)>;

rpc_outcome<> load_storage(change_chain& chain, const proto::admin::StorageConfig& config, const storage_use_of& use) {
  const std::string& name = config.global_unique_name();
  const std::string subject = "storage `" + name + "`";
  auto done = chain.last().find_storage(name)
                  ? chain.add(chain.last().update_storage(config, use(name), change_force::none), subject, "updated")
                  : chain.add(chain.last().add_storage(config), subject, "added");
  if (!done) return done;
  const auto state = config.is_disabled() ? storage_switch::disabled : storage_switch::enabled;
  return chain.add(chain.last().switch_storage(name, state), subject, config.is_disabled() ? "disabled" : "enabled");
}

rpc_outcome<> load_group(change_chain& chain, const proto::admin::InstanceGroup& group) {
  const std::string subject = "group `" + group.name() + "`";
  const auto stored = chain.last().find_group(group.name());
  if (!stored) return chain.add(chain.last().create_group(group), subject, "added");
  if (!first_difference(stored->group, group, "version")) return {};
  proto::admin::InstanceGroup next = group;
  next.set_version(std::max(group.version(), stored->terms.version + 1));
  return chain.add(chain.last().update_group(next, stored->terms.version), subject, "updated");
}

rpc_outcome<> load_account(change_chain& chain, const proto::admin::Account& account) {
  const std::string subject = "account `" + account.user_name() + "`";
  const auto stored = chain.last().find_account(account.user_name());
  if (!stored) {
    chain.remark(subject + ": left out, as a snapshot has no passwords: add it by AddAccount");
    return {};
  }
  return chain.add(chain.last().update_account(account), subject, "updated");
}

rpc_outcome<> load_all(change_chain& chain, const proto::registry::ConfigSnapshot& snapshot,
                       const storage_use_of& use) {
  rpc_outcome<> done;
  for (int i = 0; done && i < snapshot.storages_size(); ++i) done = load_storage(chain, snapshot.storages(i), use);
  for (int i = 0; done && i < snapshot.groups_size(); ++i) done = load_group(chain, snapshot.groups(i));
  for (int i = 0; done && i < snapshot.instances_size(); ++i) {
    const auto& info = snapshot.instances(i);
    done = chain.add(chain.last().register_instance(make_registration(info)), "instance `" + info.instance_id() + "`",
                     "added");
  }
  for (int i = 0; done && i < snapshot.accounts_size(); ++i) done = load_account(chain, snapshot.accounts(i));
  return done;
}

}  // namespace

std::string make_snapshot(const manager_registry& source) {
  proto::registry::ConfigSnapshot snapshot;
  snapshot.set_format(snapshot_format);
  for (const auto& [name, entry] : source.storages()) *snapshot.add_storages() = entry->config;
  for (const auto& [name, entry] : source.groups()) *snapshot.add_groups() = entry->group;
  for (const auto& [id, entry] : source.instances()) *snapshot.add_instances() = entry->info;
  for (const auto& [name, entry] : source.accounts()) *snapshot.add_accounts() = entry->message();
  std::string text;
  write_json(snapshot, text);
  return text;
}

rpc_outcome<registry_change> load_snapshot(const manager_registry& base, std::string_view text,
                                           const storage_use_of& use) {
  proto::registry::ConfigSnapshot snapshot;
  if (const auto read = read_json(text, snapshot); !read) {
    return refuse(read.error().cause.code, "config_snapshot: " + read.error().cause.message);
  }
  if (snapshot.format() != snapshot_format) {
    return refuse(answer_code::invalid_argument,
                  "config_snapshot: format is " + std::to_string(snapshot.format()) + ", and must be 1");
  }
  change_chain chain(base);
  if (const auto done = load_all(chain, snapshot, use); !done) {
    return refuse(done.error().code, "config_snapshot: " + done.error().message);
  }
  return std::move(chain).take();
}

}  // namespace cenote::manager
