//! Writes of `/scale` that are no server-side apply. In: a Scale, or a patch of one. Out: the object that it is the scale of, with
//! its number.

use serde_json::Value;

use konverge_core::{FieldError, FieldPath, Status};

use super::receive::{check_name_given, duplicate_fields};
use super::{WriteOutcome, WriteRequest};
use crate::decode::Decoded;
use crate::patch::Patch;
use crate::resource::ScalePaths;
use crate::scale;

impl WriteRequest<'_> {
    /// Sets the number that a Scale has.
    pub(crate) async fn replace_scale(
        &self,
        name: &str,
        sent: &Decoded,
        paths: &ScalePaths,
        warnings: &mut Vec<String>,
    ) -> Result<WriteOutcome, Status> {
        let found = duplicate_fields(&sent.duplicates).chain(scale::unknown_fields(&sent.value));
        self.report(found, warnings).map_err(|why| scale::undecodable(&why))?;
        self.modify(name, warnings, |object| {
            let scaled = scale::set(object, &sent.value, self.resource, paths)?;
            let given = sent.value["metadata"]["name"].as_str().unwrap_or_default();
            check_name_given(name, given).map(|()| scaled)
        })
        .await
    }

    /// Sets the number that the Scale has after a patch.
    pub(crate) async fn patch_scale(
        &self,
        name: &str,
        patch: &Patch,
        paths: &ScalePaths,
        warnings: &mut Vec<String>,
    ) -> Result<WriteOutcome, Status> {
        self.update(name, super::FieldOwnership::Changed, warnings, |object, warnings| {
            let before = scale::to_patch(object, self.resource, paths);
            let patched: Value = patch.apply(self.resource, &before, self.budget)?;
            let scaled = scale::set(object, &patched, self.resource, paths)?;
            check_name_given(name, patched["metadata"]["name"].as_str().unwrap_or_default())?;
            let found = patch.strict_errors.iter().cloned().chain(scale::unknown_fields(&patched));
            self.report(found, warnings).map_err(|why| {
                let error = FieldError::invalid(FieldPath::new("patch"), patched.to_string().into(), why);
                Status::invalid("", "", "", &[error])
            })?;
            Ok(scaled)
        })
        .await
    }
}
