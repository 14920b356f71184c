//! What members say to each other. openraft's own types are sent whole, as serde writes them, so nothing of them can be lost on the
//! way. In: a message. Out: its bytes, and back.
//!
//! On the wire this is a gRPC service of one method, as if it were compiled from this:
//!
//! ```proto
//! package konverge.raft.v1;
//! service Raft { rpc Call(Message) returns (Message); }
//! message Message { bytes body = 1; }
//! ```

use openraft::error::{InstallSnapshotError, RaftError};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse, VoteRequest,
    VoteResponse,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::member::{LogId, Member, MemberId, Types, Vote};
use crate::state::{Command, Outcome, Versioned};

/// The first byte of each message, so that a later version can be told apart.
const VERSION: u8 = 1;

/// A question, with who asks whom.
#[derive(Serialize, Deserialize)]
pub(crate) struct Envelope {
    pub cluster: String,
    pub from: MemberId,
    /// None if the asker does not know who listens there.
    pub to: Option<MemberId>,
    pub call: Call,
}

#[derive(Serialize, Deserialize)]
pub(crate) enum Call {
    /// Who are you?
    Hello,
    /// I want to be a member, at this address.
    Join(Member),
    /// Would you vote for a member with this log?
    PreVote(Option<LogId>),
    /// The leader with this vote stops; take over.
    Elect(Vote),
    Append(AppendEntriesRequest<Types>),
    Vote(VoteRequest<MemberId>),
    Snapshot(InstallSnapshotRequest<Types>),
    Write(Command),
    /// The value of this key.
    Get(String),
    /// Up to where has a member to have carried out the log before it sees all that was acknowledged by now?
    ReadIndex,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Hello(Introduction),
    Joining,
    PreVote(bool),
    Electing,
    Append(AppendEntriesResponse<MemberId>),
    Vote(VoteResponse<MemberId>),
    Snapshot(Result<InstallSnapshotResponse<MemberId>, RaftError<MemberId, InstallSnapshotError>>),
    Written(Outcome),
    Got(Option<Versioned>),
    ReadIndex(u64),
}

/// Who a member is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Introduction {
    pub id: MemberId,
    pub member: Member,
    /// Whether it has a log: it is, or was, part of a cluster.
    pub has_cluster: bool,
    /// The leader that it follows, or itself.
    pub leader: Option<Member>,
}

/// Why a question has no answer.
#[derive(Clone, Debug, thiserror::Error, Serialize, Deserialize)]
pub(crate) enum Refusal {
    #[error("the member belongs to the cluster {0:?}")]
    OtherCluster(String),
    #[error("the member has another id; it was started again without its storage, or its address was given to another")]
    OtherMember,
    #[error("the member does not lead")]
    NotLeader(Option<Member>),
    #[error("the message cannot be understood: {0}")]
    Malformed(String),
    #[error("{0}")]
    Failed(String),
}

pub(crate) type Answer = Result<Reply, Refusal>;

pub(crate) fn encode(message: &impl Serialize) -> Result<Vec<u8>, postcard::Error> {
    postcard::to_extend(message, vec![VERSION])
}

pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    match bytes.split_first() {
        Some((&VERSION, rest)) => postcard::from_bytes(rest).map_err(|error| error.to_string()),
        Some((other, _)) => Err(format!("its version is {other}, and this one knows {VERSION}")),
        None => Err("it is empty".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use openraft::error::{Fatal, SnapshotMismatch};
    use openraft::{CommittedLeaderId, Entry, EntryPayload, Membership, SnapshotSegmentId};

    use super::*;

    fn log_id(term: u64, node: MemberId, index: u64) -> LogId {
        LogId::new(CommittedLeaderId::new(term, node), index)
    }

    /// What is lost here would be lost between members: ids of leaders, learners, partial successes.
    #[test]
    fn messages_come_out_as_they_went_in() {
        let member = |ordinal| Member { ordinal, name: format!("web-{ordinal}"), address: "h:1".into() };
        let nodes: std::collections::BTreeMap<_, _> = (1..=3).map(|id| (id, member(id))).collect();
        let membership = Membership::new(vec![[1, 2].into(), [2, 3].into()], nodes);
        let append = AppendEntriesRequest::<Types> {
            vote: Vote::new_committed(3, 7),
            prev_log_id: Some(log_id(2, 9, 4)),
            entries: vec![
                Entry { log_id: log_id(3, 7, 5), payload: EntryPayload::Blank },
                Entry { log_id: log_id(3, 7, 6), payload: EntryPayload::Membership(membership) },
                Entry {
                    log_id: log_id(3, 7, 7),
                    payload: EntryPayload::Normal(Command::BeginTerm { holder: "web-0".into() }),
                },
            ],
            leader_commit: None,
        };
        let shown = format!("{append:?}");
        let sent = Envelope { cluster: "c".into(), from: 1, to: Some(2), call: Call::Append(append) };
        let got: Envelope = decode(&encode(&sent).unwrap()).unwrap();
        let Call::Append(got) = got.call else { panic!("another call") };
        assert_eq!(format!("{got:?}"), shown);

        let mismatch = SnapshotMismatch {
            expect: SnapshotSegmentId { id: "a".into(), offset: 0 },
            got: SnapshotSegmentId { id: "b".into(), offset: 9 },
        };
        for answer in [
            Ok(Reply::Append(AppendEntriesResponse::PartialSuccess(Some(log_id(3, 7, 5))))),
            Ok(Reply::Append(AppendEntriesResponse::HigherVote(Vote::new(9, 2)))),
            Ok(Reply::Snapshot(Err(RaftError::APIError(mismatch.into())))),
            Ok(Reply::Snapshot(Err(RaftError::Fatal(Fatal::Stopped)))),
            Ok(Reply::Vote(VoteResponse::new(Vote::new(9, 2), Some(log_id(3, 7, 5)), true))),
            Err(Refusal::NotLeader(Some(member(2)))),
        ] {
            let answer: Answer = answer;
            let got: Answer = decode(&encode(&answer).unwrap()).unwrap();
            assert_eq!(format!("{got:?}"), format!("{answer:?}"));
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        for (bytes, expect) in [(&[][..], "it is empty"), (&[9, 0], "its version is 9, and this one knows 1")] {
            assert_eq!(decode::<Reply>(bytes).unwrap_err(), expect);
        }
        assert!(decode::<Envelope>(&[VERSION, 255, 255]).is_err());
    }
}
