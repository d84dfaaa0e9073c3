// Names that cross between nodes: every field of a group's, of a hand-over's and of what ranks agree under goes with it
// and makes another one, also a field that comes later.
#include <boost/test/unit_test.hpp>

#include <functional>
#include <map>
#include <set>
#include <string>

#include "cluster/agreement.hpp"
#include "core/stored_identity.hpp"
#include "tests/support/aggregate_fields.hpp"
#include "tests/support/spec_changes.hpp"
#include "transport/peer/agreement_messages.hpp"
#include "transport/peer/handover_messages.hpp"

namespace cenote::cluster::name_fields_test {

namespace {

using cenote::testing::changes_of;
using cenote::testing::field_count;
using cenote::testing::spec_changes;

/// Ranks that differ in these have comparable lengths all the same; the group's owner has the instance group.
const std::set<std::string> not_compared{"id", "groups", "instance_group"};

}  // namespace

BOOST_AUTO_TEST_SUITE(name_fields)

BOOST_AUTO_TEST_CASE(each_field_that_makes_lengths_comparable_is_in_what_ranks_must_share) {
  BOOST_TEST(spec_changes.size() == field_count<instance_spec>());
  for (const auto& [field, change] : spec_changes) {
    instance_spec spec;
    change(spec);
    BOOST_TEST((shared_identity_of(spec) == shared_identity_of({})) == not_compared.contains(field), field);
  }
}

BOOST_AUTO_TEST_CASE(each_field_of_a_groups_name_makes_another_group_and_crosses_to_other_nodes) {
  const changes_of<peer::group_name> changes{
      {"text", [](auto& name) { name.text = "other"; }},
      {"owner: uid", [](auto& name) { name.owner.uid = 7; }},
      {"owner: group", [](auto& name) { name.owner.group = "other"; }},
  };
  BOOST_TEST(changes.size() == field_count<peer::group_name>() - 1 + field_count<share_holder>());
  const peer::group_name plain{.text = "ranks", .owner = {.uid = 1, .group = "payer"}};
  for (const auto& [field, change] : changes) {
    peer::seek_group asked{.group = plain};
    change(asked.group);
    BOOST_TEST((asked.group != plain), field);
    const auto heard = peer::decode_seek_group(encode(asked));
    BOOST_TEST((heard && heard->group == asked.group), field);
  }
}

BOOST_AUTO_TEST_CASE(each_field_of_a_hand_overs_name_crosses_to_other_nodes) {
  const changes_of<handover::request_name> changes{
      {"identity", [](auto& name) { name.identity = identity_of({}); }},
      {"group", [](auto& name) { name.group = 3; }},
      {"text", [](auto& name) { name.text = "other"; }},
  };
  BOOST_TEST(changes.size() == field_count<handover::request_name>());
  for (const auto& [field, change] : changes) {
    peer::follow_request asked{.request = {.text = "request"}};
    change(asked.request);
    const auto heard = peer::decode_follow_request(encode(asked));
    BOOST_TEST((heard && heard->request == asked.request), field);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::cluster::name_fields_test
