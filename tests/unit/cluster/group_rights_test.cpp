#include "cluster/group_rights.hpp"

#include <boost/test/unit_test.hpp>

#include <string>

namespace cenote::cluster::group_rights_test {

namespace {

instance_spec spec_of(const std::string& group) {
  instance_spec spec;
  spec.id = "model";
  spec.tokens_per_block = 16;
  spec.groups = {{"full", {{"kv", 4096}}}};
  spec.instance_group = group;
  return spec;
}

peer::ticket link_of(unsigned char number) {
  peer::ticket made{};
  made.fill(std::byte{number});
  return made;
}

const group_rights tenant{{{"tenant", "a token"}}};
const group_rights other_token{{{"tenant", "another token"}}};
const group_rights by_users{{{"tenant", ""}}};
const group_rights nothing{};
const peer::ticket link = link_of(1);

/// The reason for which `home` gives `asker` nothing of a group; empty: none.
std::string refusal_of(const group_rights& home, const group_rights& asker, const std::string& group = "tenant") {
  const auto spec = spec_of(group);
  return home.refusal(bind_side::asker, spec, link, asker.proof_of(bind_side::asker, spec, link));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(rights_of_groups)

BOOST_AUTO_TEST_CASE(a_restricted_group_is_for_nodes_whose_configuration_has_its_token) {
  BOOST_TEST(refusal_of(tenant, tenant) == "");
  BOOST_TEST(refusal_of(tenant, other_token).find("groups.\"tenant\".token") != std::string::npos);
  BOOST_TEST(refusal_of(tenant, nothing) != "");
  BOOST_TEST(refusal_of(tenant, by_users) != "");
  BOOST_TEST(refusal_of(by_users, by_users) == "");
  BOOST_TEST(refusal_of(by_users, nothing) != "");
}

BOOST_AUTO_TEST_CASE(a_home_that_restricts_groups_serves_none_that_it_does_not_name) {
  BOOST_TEST(refusal_of(tenant, nothing, "unnamed").find("does not name `unnamed`") != std::string::npos);
  BOOST_TEST(refusal_of(tenant, nothing, "") == "");  // an instance without a group pays for itself
  BOOST_TEST(refusal_of(nothing, nothing, "unnamed") == "");
}

BOOST_AUTO_TEST_CASE(a_home_shows_its_right_too_and_one_that_has_none_gets_no_blocks) {
  const auto spec = spec_of("tenant");
  const auto why_not = [&](const group_rights& home) {
    return tenant.refusal(bind_side::home, spec, link, home.proof_of(bind_side::home, spec, link));
  };
  BOOST_TEST(why_not(tenant) == "");
  BOOST_TEST(why_not(nothing) != "");
  BOOST_TEST(why_not(other_token) != "");
}

BOOST_AUTO_TEST_CASE(a_proof_is_of_no_use_on_another_link_for_another_instance_or_from_the_other_side) {
  const auto spec = spec_of("tenant");
  auto other = spec;
  other.id = "another model";
  const auto shown = tenant.proof_of(bind_side::asker, spec, link);
  BOOST_TEST(tenant.refusal(bind_side::asker, spec, link_of(2), shown) != "");
  BOOST_TEST(tenant.refusal(bind_side::asker, other, link, shown) != "");
  BOOST_TEST(tenant.refusal(bind_side::home, spec, link, shown) != "");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::cluster::group_rights_test
